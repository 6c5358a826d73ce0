//! The `punctual` program. Everything is in the library; see its map in `lib.rs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: the same program, started by itself, supervises processes.
    punctual::process::become_supervisor_if_asked();
    punctual::cli::main()
}
