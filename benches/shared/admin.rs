//! What a process of the program says about itself at its admin address.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use super::Result;

/// An address for a process that is about to be started.
pub fn free() -> Result<SocketAddr> {
    // Free a moment ago, which is as good as it gets.
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// What is served at a path, with status 200.
pub fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("half an answer")?;
    if head.split(' ').nth(1) == Some("200") { Ok(body.to_owned()) } else { Err(head.to_owned().into()) }
}
