//! A child process with bounded, timed lines. Pipes are read and written by threads of their own, so that
//! a child that neither reads nor writes cannot hold up anybody.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is kept of a child's standard error.
const MAX_STDERR_BYTES: usize = 400;

/// What came of waiting for a line.
pub(super) enum Received {
    /// A line.
    Line(String),
    /// The child closed its output.
    Ended,
    /// Nothing in time.
    Nothing,
    /// A line longer than allowed.
    LongLine,
}

enum FromChild {
    Line(String),
    LongLine,
}

/// A child that is killed when this is dropped.
pub(super) struct Process {
    child: Child,
    lines: Receiver<FromChild>,
    messages: Option<Sender<String>>,
    stderr: Arc<Mutex<Vec<u8>>>,
}

impl Process {
    /// Starts a command. At most `max_lines` lines wait to be read; a child that says more waits.
    pub(super) fn start(
        words: &[String],
        max_line_bytes: usize,
        max_lines: usize,
    ) -> Result<Self, String> {
        let (program, args) = words.split_first().ok_or("the command is empty")?;
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|err| format!("`{program}`: {err}"))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err("it has no pipes".into());
        };
        let (sender, lines) = sync_channel(max_lines);
        std::thread::spawn(move || read_lines(stdout, max_line_bytes, &sender));
        let (messages, receiver) = channel::<String>();
        std::thread::spawn(move || {
            for line in receiver {
                // A child that does not listen is noticed when it does not answer.
                if writeln!(stdin, "{line}").and_then(|()| stdin.flush()).is_err() {
                    return;
                }
            }
        });
        let tail = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&tail);
        std::thread::spawn(move || keep_tail(stderr, &kept));
        Ok(Self { child, lines, messages: Some(messages), stderr: tail })
    }

    /// Hands a line to the child, without waiting.
    pub(super) fn send(&mut self, line: String) {
        if let Some(messages) = &self.messages {
            // If the writer is gone, so is the child: the next `receive` says so.
            let _ = messages.send(line);
        }
    }

    /// Waits for a line.
    pub(super) fn receive(&mut self, timeout: Duration) -> Received {
        match self.lines.recv_timeout(timeout) {
            Ok(FromChild::Line(line)) => Received::Line(line),
            Ok(FromChild::LongLine) => Received::LongLine,
            Err(RecvTimeoutError::Timeout) => Received::Nothing,
            Err(RecvTimeoutError::Disconnected) => Received::Ended,
        }
    }

    /// Kills the child; its exit status in words, and the end of what it wrote to standard error.
    pub(super) fn post_mortem(&mut self) -> (String, String) {
        // A child that ended by itself is given the moment that its last words need.
        std::thread::sleep(Duration::from_millis(50));
        let status = match self.child.try_wait() {
            Ok(Some(status)) => status.to_string(),
            _ => "output closed".to_owned(),
        };
        self.kill();
        let tail = self.stderr.lock().map(|tail| tail.clone()).unwrap_or_default();
        let text = String::from_utf8_lossy(&tail).trim().replace('\n', " / ");
        (status, text)
    }

    fn kill(&mut self) {
        self.messages = None;
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads lines until the child closes its output, says one that is too long, or nobody listens.
fn read_lines(stdout: ChildStdout, max_line_bytes: usize, lines: &SyncSender<FromChild>) {
    let mut reader = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let limit = max_line_bytes as u64 + 1;
        match reader.by_ref().take(limit).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.len() > max_line_bytes => {
                let _ = lines.send(FromChild::LongLine);
                return;
            }
            Ok(_) => {
                let text = String::from_utf8_lossy(&line).trim().to_owned();
                if !text.is_empty() && lines.send(FromChild::Line(text)).is_err() {
                    return;
                }
            }
        }
    }
}

fn keep_tail(mut stderr: ChildStderr, tail: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    loop {
        match stderr.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(n) => {
                let Ok(mut tail) = tail.lock() else { return };
                tail.extend_from_slice(&buffer[..n]);
                let excess = tail.len().saturating_sub(MAX_STDERR_BYTES);
                tail.drain(..excess);
            }
        }
    }
}
