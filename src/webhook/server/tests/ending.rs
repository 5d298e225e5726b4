//! The end of a replica: nobody who calls loses anything by it.

use super::*;
use crate::webhook::caller::Lost;

/// Limits of a server that ends soon.
fn soon() -> Limits {
    Limits { drain: Duration::from_millis(300), ..Limits::default() }
}

impl Served {
    async fn ended(self) {
        let ended = timeout(Duration::from_secs(10), self.task).await;
        assert_eq!(ended.expect("it ends").unwrap(), Ok(()));
        assert!(TcpStream::connect(self.address).await.is_err(), "nobody listens any more");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_when_the_end_comes_is_answered_and_whoever_asks_before_others_have_heard_too() {
    let served = Served::start(soon());
    let (mut h1, mut h2, mut idle) = (served.h1().await, served.h2().await, served.h1().await);
    assert_eq!(idle.post("/work", "0").await, Ok(ok("done")));
    let long = tokio::spawn(async move { (h1.post("/work", "2500").await, h1) });
    let long_too = tokio::spawn(async move { h2.post("/work", "2500").await });
    served.working(2).await;
    assert!(served.metrics.ready());
    served.shutdown.cancel();
    eventually("it is not ready any more", async || (!served.metrics.ready()).then_some(()).ok_or("ready".to_owned()))
        .await;
    // Somebody has not heard: on a new connection, and on one that was kept.
    assert_eq!(served.call("/work", "0").await.unwrap(), ok("done"));
    assert_eq!(idle.post("/work", "0").await, Ok(ok("done")));
    // And is told that this was the last time here.
    assert!(matches!(idle.try_post("/work", "0").await, Err(Lost::Unsent)));
    // The others were asked before the end and are answered after it began.
    let (answer, mut connection) = long.await.unwrap();
    assert_eq!(answer, Ok(ok("done")));
    assert!(matches!(connection.try_post("/work", "0").await, Err(Lost::Unsent)));
    assert_eq!(long_too.await.unwrap(), Ok(ok("done")));
    served.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_let_in_last_shakes_hands_and_is_answered() {
    let served = Served::start(Limits { drain: Duration::from_millis(50), ..Limits::default() });
    let address = served.address;
    // Connected, and nothing said yet.
    let late = TcpStream::connect(address).await.unwrap();
    served.shutdown.cancel();
    eventually("the listener is closed", async || match TcpStream::connect(address).await {
        Ok(_) => Err("open".to_owned()),
        Err(_) => Ok(()),
    })
    .await;
    let mut connection = served.caller().h1_over(late).await.unwrap();
    assert_eq!(connection.post("/work", "0").await, Ok(ok("done")));
    served.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_nobody_uses_do_not_hold_up_the_end() {
    let served = Served::start(soon());
    let (_used, _unused) = (served.h1().await.post("/work", "0").await, served.h1().await);
    let _silent = served.caller().connect(served.address).await.unwrap();
    let began = std::time::Instant::now();
    served.shutdown.cancel();
    served.ended().await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_longer_than_an_answer_may_is_given_up() {
    let served = Served::start(Limits { answer: Duration::from_millis(600), ..soon() });
    let call = served.call("/work", "60000");
    served.working(1).await;
    served.shutdown.cancel();
    assert_eq!(call.await.unwrap().0, StatusCode::GATEWAY_TIMEOUT);
    served.ended().await;
}

/// Who calls again and again, as fast as he is answered, on connections that he keeps, at whichever replica is ready.
async fn keeps_calling(
    replicas: Vec<(SocketAddr, Arc<Metrics>)>,
    caller: Caller,
    h2: bool,
    until: CancellationToken,
) -> Result<usize, String> {
    let mut calls = 0;
    let mut kept: Option<Connection> = None;
    while !until.is_cancelled() {
        let mut connection = if let Some(connection) = kept.take() {
            connection
        } else {
            let ready = replicas.iter().find(|(_, metrics)| metrics.ready()).ok_or("none is ready")?;
            if h2 { caller.h2(ready.0).await? } else { caller.h1(ready.0).await? }
        };
        match connection.try_post("/work", "3").await {
            Ok((StatusCode::OK, _)) => {
                calls += 1;
                // Some connections are used once, others until they end.
                kept = (calls % 50 != 0).then_some(connection);
            }
            Ok((status, words)) => return Err(format!("call {calls}: {status} {words}")),
            Err(Lost::Unsent) => {}
            Err(Lost::Sent(words)) => return Err(format!("call {calls}: {words}")),
        }
    }
    Ok(calls)
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_are_replaced_one_after_the_other_lose_no_call() {
    let until = CancellationToken::new();
    // All three are there from the start, and serve one certificate; the first that is ready is called.
    let held = certificate();
    let replicas: Vec<Served> = (0..3).map(|_| Served::start_with(soon(), &held)).collect();
    let ready: Vec<_> = replicas.iter().map(|served| (served.address, served.metrics.clone())).collect();
    let callers: Vec<_> = (0..8)
        .map(|n| {
            let h2 = n % 2 == 0;
            let caller = Caller::offering(&held.bundle(), if h2 { &[b"h2"] } else { &[b"http/1.1"] });
            tokio::spawn(keeps_calling(ready.clone(), caller, h2, until.clone()))
        })
        .collect();
    let mut replicas = replicas.into_iter();
    for _ in 0..2 {
        sleep(Duration::from_millis(400)).await;
        let served = replicas.next().unwrap();
        served.shutdown.cancel();
        served.ended().await;
    }
    until.cancel();
    for caller in callers {
        let calls = caller.await.unwrap();
        assert!(calls.as_ref().is_ok_and(|calls| *calls > 20), "{calls:?}");
    }
}
