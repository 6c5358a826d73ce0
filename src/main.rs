//! The binary: a supervisor of one command if asked to be, else the command line.

fn main() {
    punctual::process::become_supervisor_if_asked();
}
