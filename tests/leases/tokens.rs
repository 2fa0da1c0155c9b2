use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::lock::{Locks, Release, Renewal};
use leasehold::{CacheStore, Key, connect};

use crate::rig::{RESOURCE, Rig};

pub(crate) async fn rise_across_release_expiry_and_an_operator(rig: Rig) {
    let mut last = None;
    for round in 0..12 {
        let ends_by_itself = round % 4 == 1;
        let ttl = if ends_by_itself { Duration::from_millis(500) } else { Duration::from_secs(30) };
        let request = rig.a.lock(RESOURCE).ttl(ttl).renewal(Renewal::Off).wait(Duration::from_secs(10));
        let lease = request.acquire().await.unwrap();
        let token = lease.fencing_token();
        assert!(token > last, "round {round}: {token:?} after {last:?}");
        last = token;
        if ends_by_itself {
            // The next waits until the server thinks so too.
            lease.lost().await;
            continue;
        }
        lease.renew().await.unwrap();
        assert_eq!(lease.fencing_token(), last, "it never changes while it is held");
        match round % 4 {
            0 => assert_eq!(lease.release().await.unwrap(), Release::Released),
            2 => assert!(rig.store.remove(&Key::new(format!("lock:{RESOURCE}")).unwrap()).await.unwrap().is_applied()),
            _ => assert!(rig.b.force_release(RESOURCE).await.unwrap().is_some()),
        }
    }
}

pub(crate) async fn rise_among_a_hundred_clients(rig: Rig) {
    let last = Arc::new(AtomicU64::new(0));
    let mut clients = Vec::new();
    for _ in 0..100 {
        let store = connect(&rig.url).await.unwrap();
        let last = last.clone();
        clients.push(tokio::spawn(async move {
            let locks = Locks::new(store);
            let lease = locks.lock(RESOURCE).wait(Duration::from_secs(60)).acquire().await.unwrap();
            let token = lease.fencing_token().unwrap().get();
            assert!(last.swap(token, Ordering::SeqCst) < token, "in the order of the holds");
            assert_eq!(lease.release().await.unwrap(), Release::Released);
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
}
