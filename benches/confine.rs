//! What confinement adds to a command: `true`, from its start to its end, in each mode.

use std::path::{Path, PathBuf};
use std::time::Duration;

use divan::Bencher;
use punctual::process::{
    Confinement, Demand, Errors, Exit, Fence, Household, Network, Spec, SupervisorPath, View,
    base_environment,
};

fn main() {
    divan::main();
}

#[divan::bench]
fn off(bencher: Bencher<'_, '_>) {
    time(bencher, |_| Confinement::Off);
}

#[divan::bench]
fn humble(bencher: Bencher<'_, '_>) {
    time(bencher, |_| Confinement::Humble);
}

#[divan::bench]
fn workspace(bencher: Bencher<'_, '_>) {
    time(bencher, |work| fence(work, View::Everything, Network::On));
}

#[divan::bench]
fn strict(bencher: Bencher<'_, '_>) {
    time(bencher, |work| fence(work, View::System, Network::Off));
}

fn time(bencher: Bencher<'_, '_>, confinement: impl Fn(&Path) -> Confinement) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let work = tempfile::tempdir().expect("a folder");
    let path = work.path().canonicalize().expect("it is there");
    let confinement = confinement(&path);
    bencher.bench_local(|| runtime.block_on(once(path.clone(), confinement.clone())));
}

async fn once(cwd: PathBuf, confinement: Confinement) {
    let household = Household::new(SupervisorPath::at(env!("CARGO_BIN_EXE_punctual")), "bench");
    let spec = Spec {
        argv: vec!["true".to_owned()],
        cwd,
        env: base_environment(),
        output_bytes_max: 1024,
        errors: Errors::WithOutput,
        confinement,
    };
    let child = household.start(spec).await.expect("it starts");
    let ended = child.wait_output(Duration::from_secs(10)).await;
    assert_eq!(ended.exit, Exit::Code(0));
    household.end_all(Duration::ZERO).await;
}

fn fence(work: &Path, view: View, network: Network) -> Confinement {
    let state = work.join("state");
    std::fs::create_dir(&state).expect("a folder");
    Confinement::Fenced(Box::new(Fence {
        view,
        readable: Vec::new(),
        own: Vec::new(),
        writable: vec![work.to_owned()],
        closed: vec![state.clone()],
        hidden: vec![state],
        network,
        demand: Demand::All,
    }))
}
