//! What those who listen hear, whatever becomes of rights, links and runtimes.

mod support;

use std::pin::pin;
use std::time::Duration;

use leasehold_core::{AtomicStore, CacheStore, Effect, ErrorKind, Expiry, Hint, Hints, Key, KeyPrefix, Outcome};
use leasehold_redis::RedisStore;
use leasehold_testkit::{Proxy, RedisServer, eventually};
use support::{DEADLINE, added, begin, calls, config, config_through, key, on_each, store};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;

async fn changed(store: &impl AtomicStore, key: &Key) {
    added(store, key, "v").await;
    assert_eq!(store.try_remove(key, b"v").await.expect("an answer"), Outcome::Applied);
}

async fn next(hints: &mut Hints) -> Hint {
    timeout(DEADLINE, hints.next()).await.expect("a hint in time").expect("a stream that goes on")
}

async fn channels(server: &RedisServer) -> String {
    server.command(&["PUBSUB", "CHANNELS"]).await
}

#[tokio::test]
async fn a_refused_topic_is_the_affair_of_those_who_asked_for_it() {
    on_each(async |server| {
        // Of patterns, a user may subscribe only to those that are spelled out.
        server.command(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "resetchannels", "&leasehold:*"]).await;
        let ours = RedisStore::connect(config(&server).with_credentials("app", "pw")).await.unwrap();
        let other = store(&server).await;
        let (a, everything) = (key("a"), KeyPrefix::new("").unwrap());
        let mut of_a = ours.watch(&a).await.unwrap();
        let connected = calls(&server, "hello").await;
        for round in 0..5 {
            let b = key(&format!("b{round}"));
            let (of_b, refused) = tokio::join!(ours.watch(&b), ours.watch_prefix(&everything));
            let error = refused.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Unauthorized, Effect::None), "{error:?}");
            let mut of_b = of_b.unwrap();
            changed(&other, &b).await;
            assert_eq!(next(&mut of_b).await, Hint::Changed(b));
            // No loss of a connection comes before it.
            changed(&other, &a).await;
            assert_eq!(next(&mut of_a).await, Hint::Changed(a.clone()));
        }
        assert_eq!(calls(&server, "hello").await, connected, "the connection is the same");
    })
    .await;
}

#[tokio::test]
async fn who_loses_a_right_and_has_it_again_is_told_of_the_gap() {
    on_each(async |server| {
        server.command(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "allchannels"]).await;
        let ours = RedisStore::connect(config(&server).with_credentials("app", "pw")).await.unwrap();
        let other = store(&server).await;
        let (a, b) = (key("a"), key("b"));
        let mut of_b = ours.watch(&b).await.unwrap();
        let channel = channels(&server).await;
        let mut of_a = ours.watch(&a).await.unwrap();

        // The server ends connections that listen to what they may no longer.
        server.command(&["ACL", "SETUSER", "app", "resetchannels", &format!("&{channel}")]).await;
        assert_eq!(next(&mut of_b).await, Hint::Anything);
        changed(&other, &b).await;
        assert_eq!(next(&mut of_b).await, Hint::Changed(b));
        let error = timeout(DEADLINE, ours.watch(&a)).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error:?}");

        of_a.drain();
        server.command(&["ACL", "SETUSER", "app", "allchannels"]).await;
        assert_eq!(next(&mut of_a).await, Hint::Anything);
        changed(&other, &a).await;
        assert_eq!(next(&mut of_a).await, Hint::Changed(a));
    })
    .await;
}

#[tokio::test]
async fn those_who_come_and_go_keep_nobody_from_being_told_of_a_gap() {
    on_each(async |server| {
        let link = Proxy::start(server.addr());
        let store = RedisStore::connect(config_through(&server, &link, Duration::from_secs(15))).await.unwrap();
        let mut hints = store.watch(&key("a")).await.unwrap();
        link.delay_answers(Duration::from_millis(20));
        let coming_and_going: Vec<_> = (0..30)
            .map(|number| {
                let (store, topic) = (store.clone(), key(&format!("b{number}")));
                tokio::spawn(async move {
                    loop {
                        // Out of step with the answers, so that some come while others are told.
                        let watching = store.watch(&topic);
                        let _ = timeout(Duration::from_millis(5 + number), watching).await;
                        // One that comes back at once has never left.
                        yield_now().await;
                    }
                })
            })
            .collect();
        eventually(DEADLINE, async || calls(&server, "unsubscribe").await > 10).await;
        link.reset_connections();
        assert_eq!(next(&mut hints).await, Hint::Anything);
        for task in coming_and_going {
            assert!(!task.is_finished());
            task.abort();
        }
    })
    .await;
}

#[test]
fn a_runtime_that_ends_before_its_first_step_leaves_hints_to_others() {
    let lasting = Runtime::new().unwrap();
    let (_server, store) = lasting.block_on(async {
        let server = RedisServer::start().await;
        let store = store(&server).await;
        (server, store)
    });
    for _ in 0..3 {
        // Nothing but the call itself ever runs there.
        let ending = Builder::new_current_thread().enable_all().build().unwrap();
        ending.block_on(async { begin(&mut pin!(store.watch(&key("a")))).await });
    }
    lasting.block_on(async {
        let mut hints = timeout(DEADLINE, store.watch(&key("a"))).await.unwrap().unwrap();
        changed(&store, &key("a")).await;
        assert_eq!(next(&mut hints).await, Hint::Changed(key("a")));
    });
}

#[test]
fn hints_go_on_when_the_runtime_that_began_them_ends() {
    let lasting = Runtime::new().unwrap();
    let server = lasting.block_on(RedisServer::start());
    for round in 0..5 {
        let store = lasting.block_on(store(&server));
        let [theirs, ours] = ["theirs", "ours"].map(|name| key(&format!("{name}{round}")));
        let ending = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let of_theirs = ending.block_on(store.watch(&theirs)).unwrap();
        let mut of_ours = lasting.block_on(store.watch(&ours)).unwrap();
        drop(of_theirs);
        ending.shutdown_background();
        lasting.block_on(async {
            assert_eq!(next(&mut of_ours).await, Hint::Anything, "there is a gap");
            eventually(DEADLINE, async || {
                changed(&store, &ours).await;
                matches!(timeout(Duration::from_millis(100), of_ours.next()).await, Ok(Some(Hint::Changed(_))))
            })
            .await;
        });
    }
}

#[tokio::test]
async fn of_many_changes_in_one_command_each_listener_hears_its_own() {
    on_each(async |server| {
        let (ours, theirs) = (store(&server).await, store(&server).await);
        let keys: Vec<_> = (0..10).map(|number| key(&format!("k{number}"))).collect();
        let items = || keys.iter().map(|key| (key.clone(), "v".into(), Expiry::Never)).collect::<Vec<_>>();
        let [mut third, mut last] = [ours.watch(&keys[3]).await.unwrap(), ours.watch(&keys[9]).await.unwrap()];
        theirs.set_many(items()).await.unwrap();
        assert_eq!(next(&mut third).await, Hint::Changed(keys[3].clone()));
        assert_eq!(next(&mut last).await, Hint::Changed(keys[9].clone()));
        theirs.remove_many(&keys).await.unwrap();
        assert_eq!(next(&mut third).await, Hint::Changed(keys[3].clone()));
        assert_eq!(next(&mut last).await, Hint::Changed(keys[9].clone()));
        let mut all = ours.watch_prefix(&KeyPrefix::new("k").unwrap()).await.unwrap();
        theirs.set_many(items()).await.unwrap();
        for key in &keys {
            assert_eq!(next(&mut all).await, Hint::Changed(key.clone()));
        }
    })
    .await;
}
