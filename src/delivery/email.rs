//! A mail, through a mail server.
//!
//! Until the server has been given the text, nothing can have arrived. From then on only its own
//! word says whether it has.

use std::path::Path;
use std::time::Duration;

use lettre::address::Envelope;
use lettre::message::header::ContentType;
use lettre::message::{Attachment, Mailbox, Message, MultiPart, SinglePart};
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use secrecy::ExposeSecret as _;

use super::letter::Letter;
use super::sent::Sent;
use crate::config::{Email, Tls};
use crate::job::{Environment, with_sources};
use crate::provider::install_crypto;

type SmtpError = lettre::transport::smtp::Error;

/// Connecting takes milliseconds; a machine that does not answer by then is away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How the mail server is asked for a password.
const MECHANISMS: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Login];

/// Sends `letter` to the receivers of `email`.
pub(super) async fn send(
    letter: &Letter,
    email: &Email,
    timeout: Duration,
    environment: &Environment,
) -> Sent {
    install_crypto();
    let message = match message(letter, email) {
        Ok(message) => message,
        Err(why) => return Sent::Refused(why),
    };
    let opening = tokio::time::timeout(timeout, begin(email, &message, environment));
    let mut connection = match opening.await {
        Ok(Ok(connection)) => connection,
        Ok(Err(sent)) => return sent,
        Err(_) => return Sent::not_yet(format!("{} took too long", email.host)),
    };
    let text = message.formatted();
    let sent = match tokio::time::timeout(timeout, connection.message(&text)).await {
        Ok(Ok(_)) => Sent::Arrived,
        Ok(Err(error)) if error.is_transient() => Sent::not_yet(words(&error)),
        Ok(Err(error)) if error.is_permanent() => Sent::Refused(words(&error)),
        Ok(Err(error)) => Sent::Lost(format!("no answer came: {}", words(&error))),
        Err(_) => Sent::Lost("no answer came in time".into()),
    };
    // Whether it says goodbye changes nothing.
    drop(tokio::time::timeout(Duration::from_secs(1), connection.quit()).await);
    sent
}

/// Everything up to the text itself.
async fn begin(
    email: &Email,
    message: &Message,
    environment: &Environment,
) -> Result<AsyncSmtpConnection, Sent> {
    let mut connection = connect(email).await?;
    if let (Some(user), Some(password)) = (&email.user, &email.password) {
        let password = password.read(environment);
        let password = password
            .map_err(|error| Sent::Refused(format!("`password`: {}", with_sources(&error))))?;
        let known = Credentials::new(user.clone(), password.expose_secret().to_owned());
        connection.auth(&MECHANISMS, &known).await.map_err(|error| before(&error))?;
    }
    let envelope: &Envelope = message.envelope();
    let mut parameters = Vec::new();
    if connection.server_info().supports_feature(Extension::EightBitMime) {
        parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    let addresses = envelope.from().into_iter().chain(envelope.to());
    if addresses.map(AsRef::<str>::as_ref).any(|address| !address.is_ascii()) {
        parameters.push(MailParameter::SmtpUtfEight);
    }
    let from = Mail::new(envelope.from().cloned(), parameters);
    connection.command(from).await.map_err(|error| before(&error))?;
    for address in envelope.to() {
        let to = Rcpt::new(address.clone(), Vec::new());
        connection.command(to).await.map_err(|error| match before(&error) {
            Sent::Refused(why) => Sent::Refused(format!("{address}: {why}")),
            sent => sent,
        })?;
    }
    connection.command(Data).await.map_err(|error| before(&error))?;
    Ok(connection)
}

async fn connect(email: &Email) -> Result<AsyncSmtpConnection, Sent> {
    let us = ClientId::default();
    let tls = match email.tls {
        Tls::None => None,
        Tls::Starttls | Tls::Tls => Some(tls_parameters(email)?),
    };
    let at_once = tls.clone().filter(|_| email.tls == Tls::Tls);
    let server = (email.host.as_str(), email.port);
    let connecting =
        AsyncSmtpConnection::connect_tokio1(server, Some(CONNECT_TIMEOUT), &us, at_once, None);
    let mut connection = connecting.await.map_err(|error| before(&error))?;
    if let (Tls::Starttls, Some(tls)) = (email.tls, tls) {
        if !connection.can_starttls() {
            let why = format!("{} offers no STARTTLS: nothing is said in the open", email.host);
            return Err(Sent::Refused(why));
        }
        connection.starttls(tls, &us).await.map_err(|error| before(&error))?;
    }
    Ok(connection)
}

fn tls_parameters(email: &Email) -> Result<TlsParameters, Sent> {
    let mut builder = TlsParameters::builder(email.host.clone());
    if let Some(path) = &email.ca_file {
        let certificate = certificate(path)
            .map_err(|why| Sent::Refused(format!("`ca_file` {}: {why}", path.display())))?;
        builder = builder.add_root_certificate(certificate);
    }
    builder.build_rustls().map_err(|error| Sent::Refused(words(&error)))
}

fn certificate(path: &Path) -> Result<Certificate, String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    Certificate::from_pem(&pem).map_err(|error| words(&error))
}

/// What an error means as long as the text has not been sent.
fn before(error: &SmtpError) -> Sent {
    if error.is_permanent() || error.is_client() {
        Sent::Refused(words(error))
    } else {
        Sent::not_yet(words(error))
    }
}

fn words(error: &SmtpError) -> String {
    with_sources(error)
}

fn message(letter: &Letter, email: &Email) -> Result<Message, String> {
    let mailbox = |address: &str| {
        address.parse::<Mailbox>().map_err(|error| format!("`{address}` is no address: {error}"))
    };
    let from = mailbox(&email.from)?;
    // The same for every try: a mailbox shows it once.
    let id = format!("<{}@punctual.{}>", letter.delivery_id, from.email.domain());
    let mut builder =
        Message::builder().from(from).subject(letter.subject()?).message_id(Some(id)).date_now();
    for address in &email.to {
        builder = builder.to(mailbox(address)?);
    }
    let text = SinglePart::plain(letter.text());
    let built = if letter.attachments.is_empty() {
        builder.singlepart(text)
    } else {
        let mut parts = MultiPart::mixed().singlepart(text);
        for path in &letter.attachments {
            parts = parts.singlepart(attachment(path)?);
        }
        builder.multipart(parts)
    };
    built.map_err(|error| error.to_string())
}

fn attachment(path: &Path) -> Result<SinglePart, String> {
    let bytes =
        std::fs::read(path).map_err(|error| format!("attach {}: {error}", path.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let kind = match path.extension().and_then(|it| it.to_str()) {
        Some("txt" | "log" | "md" | "csv") => "text/plain; charset=utf-8",
        Some("json") => "application/json",
        Some("html") => "text/html; charset=utf-8",
        Some("pdf") => "application/pdf",
        Some("png") => "image/png",
        _ => "application/octet-stream",
    };
    let kind = ContentType::parse(kind).expect("these are content types");
    Ok(Attachment::new(name).body(bytes, kind))
}
