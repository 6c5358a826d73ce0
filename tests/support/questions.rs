//! The questions of the README with their SQL: what people read is what is tested and measured.

/// Each question with its statement.
pub fn questions() -> Vec<(String, String)> {
    let readme = include_str!("../../README.md");
    let section = readme.split("\n### Questions\n").nth(1).expect("the README has that section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut parts = section.split("\n**").skip(1);
    let mut questions = Vec::new();
    for part in &mut parts {
        let (question, rest) = part.split_once("**").expect("a question ends in bold");
        let sql = rest.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next());
        questions.push((question.replace('\n', " "), sql.expect("it has its SQL").to_owned()));
    }
    questions
}
