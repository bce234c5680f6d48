//! Where results and messages go.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;

use anyhow::Context;

/// stdout or a file. Clones write to the same one.
#[derive(Clone)]
pub(crate) struct Out {
    to: Rc<RefCell<BufWriter<Box<dyn Write>>>>,
    is_file: bool,
}

impl Out {
    pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let to: Box<dyn Write> = match path {
            None => Box::new(io::stdout()),
            Some(path) => {
                let file =
                    File::create(path).with_context(|| format!("cannot write to {}", path.display()))?;
                Box::new(file)
            }
        };
        Ok(Self { to: Rc::new(RefCell::new(BufWriter::new(to))), is_file: path.is_some() })
    }

    pub(crate) fn is_file(&self) -> bool {
        self.is_file
    }

    pub(crate) fn is_terminal(&self) -> bool {
        !self.is_file && io::stdout().is_terminal()
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.borrow_mut().flush()
    }
}

/// The width of the terminal that `stream` goes to. None if it goes elsewhere.
pub(crate) fn terminal_width(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    // Some terminals report 0.
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Whether the reader has gone away, as `head` does. That is not an error, but ends the output.
pub(crate) fn is_reader_gone(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}
