//! A model server that does to each connection what a test says, byte for byte.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use serde_json::{Value, json};

/// How long a connection is held open at most.
const HELD_MAX: Duration = Duration::from_mins(1);

/// What is done on a connection once its request has been read. At the end it is closed.
pub enum Act {
    /// Send this.
    Say(String),
    /// Send these bytes, as a packet of their own.
    Bytes(Vec<u8>),
    /// Send nothing for so long.
    Wait(Duration),
    /// Send nothing until the client goes away.
    Hold,
    /// Send this again and again, with a pause after each, until the client goes away.
    Repeat(String, Duration),
    /// Drop the connection with a reset. Nothing may follow.
    Reset,
    /// Refuse every later connection.
    CloseDoor,
}

/// The server. Dropping it closes its door.
pub struct Stub {
    address: SocketAddr,
    shared: Arc<Shared>,
}

type Probed = dyn Fn() -> Vec<Act> + Send + Sync;

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Value>>,
    heads: Mutex<Vec<String>>,
    /// What is done for whoever asks for the models, if not the usual.
    on_probe: Mutex<Option<Arc<Probed>>>,
    probes: AtomicUsize,
    /// What is said of the window of a model, by the path that was asked.
    windows: Mutex<HashMap<String, Value>>,
    window_questions: AtomicUsize,
    clients_gone: AtomicUsize,
    is_closed: AtomicBool,
}

type Play = dyn Fn(usize, &Value) -> Vec<Act> + Send + Sync;

impl Stub {
    /// A model that calls these in a row, one a turn, and then says `fine`.
    pub fn calling(calls: &[(&str, Value)]) -> Self {
        let of = |(tool, arguments): &(&str, Value)| {
            head() + &call(tool, &arguments.to_string()) + &finish("tool_calls")
        };
        let answers: Vec<_> = calls.iter().map(of).collect();
        Self::answering(move |request| {
            let said = |message: &&Value| message["role"] == "assistant";
            let turn = request["messages"].as_array().unwrap().iter().filter(said).count();
            vec![Act::Say(answers.get(turn).cloned().unwrap_or_else(|| reply("fine")))]
        })
    }

    /// What it was told of its calls.
    pub fn told(&self) -> Vec<String> {
        let last = self.requests().pop().unwrap();
        let messages = last["messages"].as_array().unwrap().iter();
        let results = messages.filter(|message| message["role"] == "tool");
        results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
    }

    /// A server that plays `play(n)` for its `n`th request, the first being 0. `play` is called
    /// when the request has been read.
    pub fn new(play: impl Fn(usize) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::at(Ipv4Addr::LOCALHOST, play)
    }

    /// A server whose answer depends on what it is asked.
    pub fn answering(play: impl Fn(&Value) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::start((Ipv4Addr::LOCALHOST, 0).into(), move |_, request| play(request))
    }

    /// The same at another address of the loopback interface.
    pub fn at(address: Ipv4Addr, play: impl Fn(usize) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::on((address, 0).into(), play)
    }

    /// The same at an address where nobody listens yet.
    pub fn on(
        address: SocketAddr,
        play: impl Fn(usize) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        Self::start(address, move |n, _| play(n))
    }

    fn start(
        address: SocketAddr,
        play: impl Fn(usize, &Value) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let (play, door): (Arc<Play>, _) = (Arc::new(play), Arc::clone(&shared));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if door.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                let (play, shared) = (Arc::clone(&play), Arc::clone(&door));
                std::thread::spawn(move || shared.answer(stream, &*play));
            }
        });
        Self { address, shared }
    }

    /// A server that says the same to everyone.
    pub fn saying(response: impl Into<String>) -> Self {
        let response = response.into();
        Self::new(move |_| vec![Act::Say(response.clone())])
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Does this for whoever asks which models there are.
    #[must_use]
    pub fn when_probed(self, play: impl Fn() -> Vec<Act> + Send + Sync + 'static) -> Self {
        *self.shared.on_probe.lock().unwrap() = Some(Arc::new(play));
        self
    }

    /// Says this to whoever asks at `path` how much a model can take in. Without it, nothing is known.
    #[must_use]
    pub fn with_window(self, path: &str, answer: Value) -> Self {
        self.shared.windows.lock().unwrap().insert(path.to_owned(), answer);
        self
    }

    /// How often it was asked that. Those are neither probes nor requests.
    pub fn window_questions(&self) -> usize {
        self.shared.window_questions.load(Ordering::SeqCst)
    }

    /// How often it was asked which models there are. Those are no requests.
    pub fn probes(&self) -> usize {
        self.shared.probes.load(Ordering::SeqCst)
    }

    /// The bodies of the requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// The heads of the requests so far, header names in lower case.
    pub fn heads(&self) -> Vec<String> {
        self.shared.heads.lock().unwrap().clone()
    }

    /// How many clients went away before their connection was closed here.
    pub fn clients_gone(&self) -> usize {
        self.shared.clients_gone.load(Ordering::SeqCst)
    }

    /// Refuses every later connection; returns when it does.
    pub fn close_door(&self) {
        self.shared.close_door(self.address);
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn answer(&self, mut stream: TcpStream, play: &Play) {
        let Some((head, body)) = read_request(&mut stream) else { return };
        let acts = if asks_for_window(&head) {
            self.window_questions.fetch_add(1, Ordering::SeqCst);
            let path = head.split(['?', ' ']).nth(1).unwrap_or_default();
            let known = self.windows.lock().unwrap().get(path).cloned();
            vec![Act::Say(match known {
                Some(answer) => refusal("200 OK", &answer),
                None => refusal("404 Not Found", &json!({})),
            })]
        } else if head.starts_with("GET ") {
            self.probes.fetch_add(1, Ordering::SeqCst);
            let play = self.on_probe.lock().unwrap().clone();
            play.map_or_else(|| vec![Act::Say(refusal("200 OK", &json!({"data": []})))], |it| it())
        } else {
            self.heads.lock().unwrap().push(head);
            let n = {
                let mut requests = self.requests.lock().unwrap();
                requests.push(body.clone());
                requests.len() - 1
            };
            play(n, &body)
        };
        for act in acts {
            let is_there = match act {
                Act::Say(text) => stream.write_all(text.as_bytes()).is_ok(),
                Act::Bytes(bytes) => {
                    // Nothing is gathered with what comes after a moment.
                    std::thread::sleep(Duration::from_millis(20));
                    stream.set_nodelay(true).unwrap();
                    stream.write_all(&bytes).is_ok()
                }
                Act::Wait(length) => stays(&mut stream, length),
                Act::Hold => stays(&mut stream, HELD_MAX),
                Act::Repeat(text, pause) => repeat(&mut stream, &text, pause),
                Act::Reset => {
                    let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
                    setsockopt(&stream, sockopt::Linger, &at_once).unwrap();
                    return;
                }
                Act::CloseDoor => {
                    self.close_door(stream.local_addr().unwrap());
                    true
                }
            };
            if !is_there {
                self.clients_gone.fetch_add(1, Ordering::SeqCst);
                return;
            }
        }
        drop(stream.shutdown(Shutdown::Both));
    }

    fn close_door(&self, address: SocketAddr) {
        self.is_closed.store(true, Ordering::SeqCst);
        super::until("the door is closed", || TcpStream::connect(address).is_err());
    }
}

/// Who asks for the models alone takes any answer.
fn asks_for_window(head: &str) -> bool {
    let is_get = head.starts_with("GET ") && head.contains("accept: application/json");
    is_get || head.starts_with("POST /api/show ") || head.starts_with("POST /v1/api/show ")
}

/// Whether the client stays while it is told the same over and over.
fn repeat(stream: &mut TcpStream, text: &str, pause: Duration) -> bool {
    let times = HELD_MAX.as_millis() / pause.as_millis();
    (0..times).all(|_| {
        std::thread::sleep(pause);
        stream.write_all(text.as_bytes()).is_ok()
    })
}

/// Whether the client stays for `length`.
fn stays(stream: &mut TcpStream, length: Duration) -> bool {
    let end = Instant::now() + length;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        // It returns at once when the client goes away.
        stream.set_read_timeout(Some(left)).unwrap();
        match stream.read(&mut [0; 64]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
}

/// Head and body of a request; `None` for a client that goes away before.
fn read_request(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece).ok().filter(|&count| count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        if body.len() >= length.unwrap_or(0usize) {
            return Some((head.to_owned(), serde_json::from_str(body).unwrap_or(Value::Null)));
        }
    }
}

/// The head of a stream.
pub fn head() -> String {
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_owned()
}

/// A whole response with `status` and a JSON body.
pub fn refusal(status: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    )
}

/// The same response, which asks to be waited for.
pub fn retry_after(seconds: &str, response: &str) -> String {
    response.replacen("\r\n", &format!("\r\nretry-after: {seconds}\r\n"), 1)
}

/// One event.
pub fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// A piece of text.
pub fn text(piece: &str) -> String {
    event(&json!({"choices": [{"index": 0, "delta": {"content": piece}}]}))
}

/// A tool call with its arguments, or as much of them as there is.
pub fn call(tool: &str, arguments: &str) -> String {
    let function = json!({"name": tool, "arguments": arguments});
    let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
    event(&json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))
}

/// The end of an answer, with usage.
pub fn finish(reason: &str) -> String {
    let end = event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}));
    let usage = json!({"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16});
    format!("{end}{}data: [DONE]\n\n", event(&json!({"choices": [], "usage": usage})))
}

/// A whole answer.
pub fn reply(words: &str) -> String {
    format!("{}{}{}", head(), text(words), finish("stop"))
}
