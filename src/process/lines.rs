//! The parent's socket as a supervisor sees it, a line at a time.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use super::protocol::Fact;

/// The socket, and what was read of its next line.
pub(super) struct Lines {
    socket: Option<UnixStream>,
    /// For the way back, which stays open when the parent has shut its own.
    back: Option<UnixStream>,
    read: Vec<u8>,
}

impl Lines {
    pub fn new(socket: UnixStream) -> Self {
        let back = socket.try_clone().ok();
        Self { socket: Some(socket), back, read: Vec::new() }
    }

    pub fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    pub fn open_socket(&self) -> Option<&UnixStream> {
        self.socket.as_ref()
    }

    /// Reads once, which does not block after a poll said so; notes the end of the stream.
    pub fn fill(&mut self) {
        let mut chunk = [0; 8 * 1024];
        let Some(socket) = &mut self.socket else { return };
        match socket.read(&mut chunk) {
            Ok(0) => self.socket = None,
            Ok(count) => self.read.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.socket = None,
        }
    }

    pub fn next(&mut self) -> Option<Vec<u8>> {
        let end = self.read.iter().position(|&byte| byte == b'\n')?;
        let rest = self.read.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.read, rest);
        line.pop();
        Some(line)
    }

    pub fn wait(&mut self) -> Option<Vec<u8>> {
        while self.is_open() {
            self.fill();
            if let Some(line) = self.next() {
                return Some(line);
            }
        }
        None
    }

    /// Tells the parent. If it is gone, the read side says so; there is nothing to do here.
    pub fn tell(&mut self, fact: &Fact) {
        let mut line = serde_json::to_vec(fact).expect("a fact is plain data");
        line.push(b'\n');
        if let Some(back) = &mut self.back {
            let _ = back.write_all(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_where_they_end_and_not_where_the_socket_paused() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut lines = Lines::new(theirs);
        ours.write_all(b"one\ntw").unwrap();
        assert_eq!(lines.wait(), Some(b"one".to_vec()));
        ours.write_all(b"o\nthree").unwrap();
        assert_eq!(lines.wait(), Some(b"two".to_vec()));
        drop(ours);
        assert_eq!(lines.wait(), None);
        assert!(!lines.is_open());
    }
}
