//! A proxy before a DynamoDB, which denies actions, changes dates and remembers what was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What it does.
#[derive(Clone, Default)]
pub(crate) struct Behaviour {
    /// Actions that it denies.
    pub(crate) denied: Vec<&'static str>,
    /// The date that it tells, instead of the right one.
    pub(crate) date: Option<&'static str>,
    /// What it answers to everything, instead of asking: a status and a body.
    pub(crate) always: Option<(u16, String)>,
    /// The host that it asks for, instead of the one that it was asked for.
    pub(crate) host: Option<&'static str>,
}

pub(crate) struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Before the DynamoDB at `url`. It runs until the tests end.
    pub(crate) fn start(url: &str, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let (upstream, actions) = (url.trim_start_matches("http://").to_owned(), Arc::clone(&asked));
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (upstream, behaviour, actions) = (upstream.clone(), behaviour.clone(), actions.clone());
                // A client may leave in the middle.
                thread::spawn(move || serve(socket, &upstream, &behaviour, &actions).ok());
            }
        });
        Self { address, asked }
    }

    /// Before the server at this address, which it asks by another name.
    pub(crate) fn renaming(address: SocketAddr, host: &'static str) -> Self {
        Self::start(&address.to_string(), Behaviour { host: Some(host), ..Behaviour::default() })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The actions that were asked for, each once.
    pub(crate) fn actions(&self) -> Vec<String> {
        let mut actions = self.asked.lock().unwrap().clone();
        actions.sort();
        actions.dedup();
        actions
    }
}

/// Answers one request and closes the connection.
fn serve(
    socket: TcpStream,
    upstream: &str,
    behaviour: &Behaviour,
    asked: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(socket.try_clone()?);
    let (mut head, mut length, mut action) = (String::new(), 0, String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "x-amz-target" => action = value.rsplit('.').next().unwrap_or_default().trim().to_owned(),
            "connection" => continue,
            "host" if behaviour.host.is_some() => continue,
            _ => {}
        }
        head += &line;
    }
    if let Some(host) = behaviour.host {
        head += &format!("host: {host}\r\n");
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut socket = socket;
    asked.lock().unwrap().push(action.clone());
    if let Some((status, body)) = &behaviour.always {
        return answer(&mut socket, *status, behaviour.date, body);
    }
    if behaviour.denied.contains(&action.as_str()) {
        let body = format!(
            "{{\"__type\":\"com.amazon.coral.service#AccessDeniedException\",\"Message\":\"User: \
             arn:aws:sts::123456789012:assumed-role/app/i is not authorized to perform: dynamodb:{action}\"}}"
        );
        return answer(&mut socket, 400, behaviour.date, &body);
    }
    let mut server = TcpStream::connect(upstream)?;
    server.write_all(format!("{head}connection: close\r\n\r\n").as_bytes())?;
    server.write_all(&body)?;
    let mut reply = Vec::new();
    server.read_to_end(&mut reply)?;
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(reply.len());
    let (head, body) = reply.split_at(end);
    for line in String::from_utf8_lossy(head).split("\r\n") {
        match behaviour.date {
            Some(date) if line.to_ascii_lowercase().starts_with("date:") => {
                socket.write_all(format!("date: {date}\r\n").as_bytes())?;
            }
            _ => socket.write_all(format!("{line}\r\n").as_bytes())?,
        }
    }
    // It begins with the two line ends after the head, of which one is written.
    socket.write_all(&body[2.min(body.len())..])
}

fn answer(socket: &mut TcpStream, status: u16, date: Option<&str>, body: &str) -> std::io::Result<()> {
    let date = date.map(|date| format!("date: {date}\r\n")).unwrap_or_default();
    let length = body.len();
    write!(
        socket,
        "HTTP/1.1 {status} x\r\ncontent-type: application/x-amz-json-1.0\r\n{date}content-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
}
