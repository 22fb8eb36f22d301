use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as Socket};
use std::time::Instant as Now;

use super::*;

/// Longer than anything here takes on a busy host.
const PATIENCE: Duration = Duration::from_secs(20);

/// A target that sends back all that comes, until its connection ends.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || std::io::copy(&mut &socket, &mut &socket));
        }
    });
    addr
}

/// A connection through a proxy before it, in this weather there and back.
fn through(there: Weather, back: Weather) -> (Proxy, Socket) {
    let proxy = Proxy::before(echo(), 7);
    proxy.set_ways(there, back);
    let socket = Socket::connect(proxy.addr()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    (proxy, socket)
}

fn sent(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// Sends bytes, and takes as many.
fn exchange(socket: &Socket, bytes: &[u8]) -> Vec<u8> {
    let mut back = vec![0; bytes.len()];
    thread::scope(|scope| {
        scope.spawn(|| (&mut &*socket).write_all(bytes).unwrap());
        (&mut &*socket).read_exact(&mut back).unwrap();
    });
    back
}

/// Waits until it has counted this.
fn until(proxy: &Proxy, is_so: impl Fn(&Counted) -> bool) {
    let by = Now::now() + PATIENCE;
    while !is_so(&proxy.counted()) {
        assert!(Now::now() < by, "{:?}", proxy.counted());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn bytes_arrive_whole_and_in_order_whatever_slows_them_down() {
    let bytes = sent(40_000);
    for weather in [
        Weather::Clear,
        Weather::Delay { by: Duration::from_millis(20) },
        Weather::Drip { bytes: 4_000, pause: Duration::from_millis(1) },
        Weather::Split { bytes_max: 900 },
    ] {
        let (proxy, socket) = through(weather, weather);
        let began = Now::now();
        assert_eq!(exchange(&socket, &bytes), bytes, "{weather:?}");
        let counted = proxy.counted();
        match weather {
            Weather::Delay { by } => assert!(counted.late > 1 && began.elapsed() >= 2 * by),
            Weather::Drip { .. } => assert!(counted.late >= 20),
            Weather::Split { .. } => assert!(counted.split >= 2 * 40_000 / 900),
            _ => assert_eq!((counted.late, counted.split), (0, 0)),
        }
        // Both ends go through, each for itself.
        socket.shutdown(Shutdown::Write).unwrap();
        assert_eq!((&mut &socket).read(&mut [0; 8]).unwrap(), 0);
        assert_eq!((counted.connections, counted.breaks()), (1, 1));
    }
}

#[test]
fn a_flipped_bit_comes_within_its_bound_again_and_again() {
    let (proxy, socket) = through(Weather::Flip { bytes_max: 1_000 }, Weather::Clear);
    let bytes = sent(50_000);
    let back = exchange(&socket, &bytes);
    let flipped: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != back[*at]).collect();
    assert_eq!(flipped.len() as u64, proxy.counted().flips);
    assert!(flipped[0] < 1_000 && flipped.windows(2).all(|pair| pair[1] - pair[0] <= 1_000), "{flipped:?}");
    assert!(flipped.iter().all(|at| (bytes[*at] ^ back[*at]).is_power_of_two()));
    // The same seed flips the same bits.
    let (_proxy, socket) = through(Weather::Flip { bytes_max: 1_000 }, Weather::Clear);
    assert_eq!(exchange(&socket, &bytes), back);
}

#[test]
fn a_reset_ends_both_ways_at_once() {
    let (proxy, socket) = through(Weather::Reset { bytes_max: 10_000 }, Weather::Clear);
    // The writer may hear of it too.
    let _heard = (&mut &socket).write_all(&sent(10_000));
    let error = (&mut &socket).read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.counted().resets, 1);
}

#[test]
fn a_half_close_ends_one_way_and_the_other_goes_on() {
    let (proxy, socket) = through(Weather::HalfClose { bytes_max: 10_000 }, Weather::Clear);
    (&mut &socket).write_all(&sent(10_000)).unwrap();
    let mut back = Vec::new();
    (&mut &socket).read_to_end(&mut back).unwrap();
    assert!(!back.is_empty() && back == sent(10_000)[..back.len()], "{}", back.len());
    assert_eq!(proxy.counted().half_closes, 1);
}

#[test]
fn a_way_that_lost_bytes_stays_silent_and_new_connections_pass_once_it_clears_up() {
    let (proxy, socket) = through(Weather::BlackHole, Weather::Clear);
    (&mut &socket).write_all(b"lost").unwrap();
    until(&proxy, |counted| counted.lost_bytes == 4);
    proxy.set(Weather::Clear);
    (&mut &socket).write_all(b"lost too").unwrap();
    until(&proxy, |counted| counted.lost_bytes == 12);
    socket.set_nonblocking(true).unwrap();
    assert_eq!((&mut &socket).read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let socket = Socket::connect(proxy.addr()).unwrap();
    assert_eq!(exchange(&socket, b"found"), b"found");
}

#[test]
fn what_is_slow_arrives_at_once_when_it_clears_up_and_all_ends_with_the_proxy() {
    let (proxy, socket) = through(Weather::Delay { by: 100 * PATIENCE }, Weather::Clear);
    (&mut &socket).write_all(b"slow").unwrap();
    until(&proxy, |counted| counted.late == 1);
    proxy.set(Weather::Clear);
    let mut back = [0; 4];
    (&mut &socket).read_exact(&mut back).unwrap();
    assert_eq!(&back, b"slow");
    drop(proxy);
    assert_eq!((&mut &socket).read(&mut back).unwrap_or(0), 0);
}

#[test]
fn connections_go_where_it_is_aimed_and_end_where_nobody_listens() {
    let (proxy, socket) = through(Weather::Clear, Weather::Clear);
    assert_eq!(exchange(&socket, b"here"), b"here");
    // Nobody can listen at port 0.
    proxy.aim("127.0.0.1:0");
    let lost = Socket::connect(proxy.addr()).unwrap();
    lost.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!((&mut &lost).read(&mut [0; 8]).unwrap_or(0), 0);
    assert_eq!((proxy.counted().connections, proxy.counted().unreached), (2, 1));
    assert_eq!(exchange(&socket, b"still here"), b"still here");
}
