use std::time::Duration;

use wire::frame::Kind;
use wire::ids::{ClusterId, StarId};
use wire::message::{CheckTail, GoAway, Hello, Message, Ping, Pong, Refused, Tail, Welcome};
use wire::names::Address;
use wire::reason::Reason;

use crate::star::tests::harness::{BUCKET, Client, append_frame, data, doors, open_of, serve_behind, settings};
use crate::{Doors, Porter};

const WHY: &str = "the store is away";
const CLUSTER: ClusterId = ClusterId::from_bytes([1; 16]);
const STAR: StarId = StarId::from_bytes([2; 16]);

fn porter(doors: &Doors) -> Porter {
    doors.porter((Some(CLUSTER), STAR), WHY).unwrap()
}

fn hello() -> Hello {
    Hello { client: "test".to_owned() }
}

fn greeted(doors: &Doors) -> Client {
    let mut client = Client::stranger(doors.addr());
    let welcome: Welcome = client.call(&hello()).unwrap();
    assert_eq!((welcome.cluster_id, welcome.star_id), (CLUSTER, STAR));
    client
}

fn check_tail() -> CheckTail {
    CheckTail { address: Address::new(BUCKET, "orders").unwrap() }
}

fn is_refused(client: &mut Client, why: &str) {
    let refusal = client.call::<Tail>(&check_tail()).unwrap_err();
    assert_eq!((refusal.reason, refusal.message.as_str()), (Reason::Unavailable, why));
    assert!(refusal.details.unwrap().retry_after_ms.is_some());
}

#[test]
fn whoever_comes_is_told_why_nothing_is_served_whatever_they_send() {
    let doors = doors(2);
    let porter = porter(&doors);
    let mut clients: Vec<Client> = (0..8).map(|_| greeted(&doors)).collect();
    for client in &mut clients {
        is_refused(client, WHY);
        // A body that is longer than what is received at once, and what follows it.
        let mut bytes = Vec::new();
        append_frame(7, 1, &vec![b'x'; 900 << 10], &mut bytes);
        Ping { echo: 42 }.frame(3, &mut bytes);
        client.send(&bytes);
        let (refused, pong) = (client.next().unwrap(), client.next().unwrap());
        assert_eq!(Refused::get(&refused.head).unwrap().refusal.message, WHY);
        assert_eq!((pong.kind, Pong::get(&pong.head).unwrap().echo), (Kind::Pong, 42));
    }
    porter.says("it recovers");
    is_refused(&mut clients[0], "it recovers");
    porter.leave().unwrap();
}

#[test]
fn a_hello_may_come_byte_by_byte_and_what_is_none_ends_its_connection() {
    let doors = doors(1);
    let porter = porter(&doors);
    let mut slow = Client::stranger(doors.addr());
    let mut bytes = Vec::new();
    hello().frame(1, &mut bytes);
    bytes.iter().for_each(|byte| slow.send(&[*byte]));
    assert_eq!(slow.next().unwrap().kind, Kind::Welcome);
    for wrong in [b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n".to_vec(), {
        bytes[40] ^= 1;
        bytes
    }] {
        let mut stranger = Client::stranger(doors.addr());
        stranger.send(&wrong);
        let refused = stranger.next().unwrap();
        assert_eq!(Refused::get(&refused.head).unwrap().refusal.reason, Reason::Invalid);
        assert!(stranger.next().is_none());
    }
    porter.leave().unwrap();
}

#[test]
fn once_the_porter_has_left_the_same_address_is_served_by_shards() {
    let (data, doors) = (data(), doors(2));
    let porter = porter(&doors);
    let mut early = greeted(&doors);
    is_refused(&mut early, WHY);
    porter.leave().unwrap();
    let asked = early.next().unwrap();
    assert!(GoAway::get(&asked.head).unwrap().why.contains("connect again"));
    assert!(early.next().is_none());
    // It waits until somebody accepts.
    let mut waiting = Client::stranger(doors.addr());
    let asked = waiting.ask(&hello());
    std::thread::sleep(Duration::from_millis(100));
    let star = serve_behind(&doors, data.path(), 2, settings());
    waiting.answer::<Welcome>(asked).unwrap();
    let opened: wire::message::Opened = waiting.call(&open_of("orders")).unwrap();
    assert_eq!(waiting.append(opened.session, 1..3, b"late").len(), 2);
    star.stop();
}
