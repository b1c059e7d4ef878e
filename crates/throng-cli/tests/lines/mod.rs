//! The output of a process, line by line; a test can wait for a line with a deadline.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Lines with their ends, as they come. Reads on to the end, so that a process can always say something, whether or not
/// anybody listens.
pub(crate) fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            let _ = sender.send(std::mem::take(&mut line));
        }
    });
    lines
}
