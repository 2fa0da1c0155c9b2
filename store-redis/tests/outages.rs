//! What a call says when the link fails, and how soon the store is back.

mod support;

use std::time::Duration;

use leasehold_core::{AddOutcome, AtomicStore, CacheStore, Effect, ErrorKind, Hint, KeyPrefix, Outcome};
use leasehold_redis::{RedisStore, redis};
use leasehold_testkit::{Family, Proxy, RedisServer, eventually};
use support::{DEADLINE, MINUTE, added, config, config_through, key, on_each, store, ttl, value};
use tokio::time::{Instant, timeout};

/// A deadline that a test waits out.
const SHORT: Duration = Duration::from_millis(300);
/// A deadline that no test should come to.
const LONG: Duration = Duration::from_secs(15);

async fn behind_a_link(server: &RedisServer, deadline: Duration) -> (RedisStore, Proxy) {
    let link = Proxy::start(server.addr());
    let store = RedisStore::connect(config_through(server, &link, deadline)).await.expect("a link that passes");
    (store, link)
}

#[tokio::test]
async fn a_link_cut_after_the_request_leaves_the_effect_unknown() {
    on_each(async |server| {
        let (cut, link) = behind_a_link(&server, LONG).await;
        let other = store(&server).await;
        let sent = key("sent");

        // Once, so that the server knows the script and the first request is the only one.
        added(&cut, &key("warm"), "v").await;
        link.cut_after("EVALSHA");
        let error = cut.try_add(&sent, "v".into(), ttl(MINUTE)).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{error:?}");
        // It was carried out, and once: it is not sent again.
        eventually(DEADLINE, async || value(&other, &sent).await.is_some()).await;

        // The connection is made anew at once.
        assert_eq!(cut.try_remove(&sent, b"v").await.unwrap(), Outcome::Applied);
        assert_eq!(value(&other, &sent).await, None);
    })
    .await;
}

#[test]
fn an_attempt_to_connect_that_nobody_drives_keeps_nobody_from_the_next() {
    let driven = tokio::runtime::Runtime::new().unwrap();
    let parked = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (server, link, store) = driven.block_on(async {
        let server = RedisServer::start().await;
        let (store, link) = behind_a_link(&server, SHORT).await;
        added(&store, &key("a"), "v").await;
        (server, link, store)
    });
    link.refuse();
    let fails = async || timeout(DEADLINE, store.get(&key("a"))).await.unwrap().is_err();
    driven.block_on(eventually(DEADLINE, fails));
    // Each call leaves behind it the attempt after the one that it waited for.
    for _ in 0..3 {
        assert!(parked.block_on(fails()));
    }
    link.pass();
    driven.block_on(eventually(DEADLINE, async || !fails().await));
    drop(server);
}

#[tokio::test]
async fn each_write_whose_answer_is_lost_is_of_unknown_effect_and_sent_once() {
    on_each(async |server| {
        let (store, link) = behind_a_link(&server, SHORT).await;
        let (one, two) = (key("one"), key("two"));
        added(&store, &one, "v").await;
        let calls = || support::calls(&server, "evalsha");
        store.set(&two, "v".into(), leasehold_core::Expiry::Never).await.unwrap();

        for operation in ["try_add", "try_replace", "try_remove", "try_expire", "set", "remove"] {
            // The last answer was lost, and the connection with it.
            eventually(DEADLINE, async || store.get(&one).await.is_ok()).await;
            let before = calls().await;
            link.swallow_answer_to("EVALSHA");
            let error = match operation {
                "try_add" => store.try_add(&one, "v".into(), ttl(MINUTE)).await.map(drop),
                "try_replace" => store.try_replace(&one, b"v", "w".into(), ttl(MINUTE)).await.map(drop),
                "try_remove" => store.try_remove(&one, b"x").await.map(drop),
                "try_expire" => store.try_expire(&one, b"w", ttl(MINUTE)).await.map(drop),
                "set" => store.set(&one, "v".into(), leasehold_core::Expiry::Never).await.map(drop),
                _ => store.remove(&one).await.map(drop),
            };
            let error = error.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown), "{error:?}");
            assert_eq!(error.operation(), operation);
            assert_eq!(calls().await, before + 1, "{operation}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_was_refused_has_no_effect_and_what_waited_is_served() {
    on_each(async |server| {
        let (store, link) = behind_a_link(&server, SHORT).await;
        link.refuse();
        let error = timeout(DEADLINE, store.try_add(&key("a"), "v".into(), ttl(MINUTE))).await.unwrap().unwrap_err();
        // A call that comes before the connection's end is known may have been sent.
        let error = match error.effect() {
            Effect::None => error,
            Effect::Unknown => {
                timeout(DEADLINE, store.try_add(&key("a"), "v".into(), ttl(MINUTE))).await.unwrap().unwrap_err()
            }
        };
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error:?}");
        assert!(format!("{error:#}").contains("nothing listens there"), "{error:#}");
        // The outage has outlasted a deadline, and still every call says so.
        for _ in 0..3 {
            let error = timeout(DEADLINE, store.get(&key("a"))).await.unwrap().unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error:?}");
        }

        link.pass();
        eventually(DEADLINE, async || store.get(&key("a")).await.is_ok()).await;
        assert_eq!(server.command(&["DBSIZE"]).await, "0");
    })
    .await;
}

#[tokio::test]
async fn a_call_waits_for_the_connection_and_all_who_wait_share_one() {
    on_each(async |server| {
        let (store, link) = behind_a_link(&server, LONG).await;
        link.refuse();
        eventually(DEADLINE, async || link.counts().open == 0).await;
        // Whoever comes while its end is not known yet has to find out.
        let _ = timeout(SHORT, store.get(&key("a"))).await;

        let accepted = link.counts().accepted;
        let callers: Vec<_> = (0..64)
            .map(|number| {
                let store = store.clone();
                tokio::spawn(async move { store.try_add(&key(&format!("k{number}")), "v".into(), ttl(MINUTE)).await })
            })
            .collect();
        tokio::task::yield_now().await;
        link.pass();
        for caller in callers {
            assert!(matches!(timeout(DEADLINE, caller).await.unwrap().unwrap(), Ok(AddOutcome::Added(_))));
        }
        assert_eq!(link.counts().accepted, accepted + 1, "one attempt for all");
    })
    .await;
}

#[tokio::test]
async fn a_restarted_server_is_found_again() {
    on_each(async |server| {
        let store = store(&server).await;
        added(&store, &key("a"), "v").await;
        server.kill().await;
        server.restart().await;
        eventually(DEADLINE, async || match store.get(&key("a")).await {
            Ok(found) => {
                assert_eq!(found, None, "a server that keeps nothing has forgotten");
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                false
            }
        })
        .await;
        added(&store, &key("a"), "v").await;
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_stopped_answering_is_replaced() {
    on_each(async |server| {
        let (store, link) = behind_a_link(&server, SHORT).await;
        added(&store, &key("a"), "v").await;
        link.black_hole_dropping();
        let error = timeout(DEADLINE, store.try_remove(&key("a"), b"v")).await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown), "{error:?}");
        // Now it is known, and nothing is sent into it.
        let error = timeout(DEADLINE, store.try_remove(&key("a"), b"v")).await.unwrap().unwrap_err();
        assert_eq!(error.effect(), Effect::None, "{error:?}");

        // The old connection has lost bytes and stays dead, so only a new one can answer.
        link.pass();
        eventually(DEADLINE, async || store.get(&key("a")).await.is_ok()).await;
        assert_eq!(value(&store, &key("a")).await.unwrap(), "v");
    })
    .await;
}

/// Calls and stops waiting long before the deadline of the store.
async fn give_up(store: &RedisStore) {
    let answer = timeout(SHORT / 10, store.get(&key("a"))).await;
    assert!(answer.is_err(), "{answer:?}");
}

#[tokio::test]
async fn a_silent_connection_is_replaced_though_all_give_up_before_their_deadline() {
    on_each(async |server| {
        let (store, link) = behind_a_link(&server, SHORT).await;
        added(&store, &key("a"), "v").await;
        let accepted = link.counts().accepted;
        link.black_hole_dropping();
        // One is enough.
        give_up(&store).await;
        eventually(DEADLINE, async || link.counts().accepted > accepted).await;
        link.pass();
        eventually(DEADLINE, async || store.get(&key("a")).await.is_ok()).await;
    })
    .await;
}

#[tokio::test]
async fn a_slow_connection_is_kept_though_all_give_up_before_it_answers() {
    on_each(async |server| {
        let (store, link) = behind_a_link(&server, SHORT).await;
        added(&store, &key("a"), "v").await;
        let accepted = link.counts().accepted;
        // It answers within the deadline, and later than they wait.
        link.delay_answers(SHORT / 5);
        let started = Instant::now();
        while started.elapsed() < SHORT * 4 {
            give_up(&store).await;
        }
        assert!(store.get(&key("a")).await.unwrap().is_some());
        assert_eq!(link.counts().accepted, accepted);
    })
    .await;
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_left_for_the_one_that_the_address_leads_to() {
    for family in Family::ALL {
        let old = RedisServer::builder().family(family).start().await;
        let new = RedisServer::builder().family(family).start().await;
        // Between the store and the servers, as a name that is resolved anew.
        let (store, address) = behind_a_link(&old, LONG).await;
        added(&store, &key("a"), "v").await;
        old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]).await;

        // While it leads to the replica, the connection is not made anew with each call.
        let (accepted, since) = (address.counts().accepted, Instant::now());
        for _ in 0..100 {
            let error = store.try_add(&key("b"), "v".into(), ttl(MINUTE)).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error:?}");
        }
        let connected = address.counts().accepted - accepted;
        assert!(connected <= 1 + since.elapsed().as_secs(), "{connected} in {:?}", since.elapsed());

        address.redirect(new.addr());
        eventually(DEADLINE, async || store.try_add(&key("b"), "v".into(), ttl(MINUTE)).await.is_ok()).await;
        assert_eq!(new.command(&["DBSIZE"]).await, "2", "the entry and its floor");
    }
}

#[tokio::test]
async fn one_item_that_is_refused_by_a_replica_is_enough_to_leave_it() {
    let old = RedisServer::start().await;
    let new = RedisServer::start().await;
    let (store, address) = behind_a_link(&old, LONG).await;
    // Of these, only the sliding one is written to when it is read.
    added(&store, &key("a"), "v").await;
    store.set(&key("b"), "v".into(), leasehold_core::Expiry::Sliding(ttl(MINUTE))).await.unwrap();
    old.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    address.redirect(new.addr());
    let keys = [key("a"), key("b")];
    eventually(DEADLINE, async || match store.get_many(&keys).await {
        Ok(found) => found == [None, None],
        Err(_) => false,
    })
    .await;
}

#[tokio::test]
async fn a_paused_server_holds_no_call_beyond_its_deadline_and_may_still_apply_it() {
    on_each(async |server| {
        let store = RedisStore::connect(config(&server).with_deadline(SHORT)).await.unwrap();
        added(&store, &key("a"), "v").await;
        server.pause();
        let started = Instant::now();
        let error = timeout(DEADLINE, store.try_add(&key("late"), "v".into(), ttl(MINUTE))).await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Timeout, Effect::Unknown), "{error:?}");
        assert!(started.elapsed() >= SHORT);
        server.resume();
        // It was on its way, and lands.
        eventually(DEADLINE, async || matches!(store.get(&key("late")).await, Ok(Some(_)))).await;
    })
    .await;
}

#[tokio::test]
async fn one_slow_answer_does_not_end_a_connection_that_serves_others() {
    on_each(async |server| {
        let (store, link) = behind_a_link(&server, LONG).await;
        added(&store, &key("a"), "v").await;
        let accepted = link.counts().accepted;
        // Given up by its caller, and not by the store.
        link.delay_answers(SHORT);
        assert!(timeout(SHORT / 3, store.get(&key("a"))).await.is_err());
        assert!(store.get(&key("a")).await.unwrap().is_some());
        assert_eq!(link.counts().accepted, accepted);
    })
    .await;
}

#[tokio::test]
async fn a_batch_is_one_trip() {
    on_each(async |server| {
        let (store, link) = behind_a_link(&server, LONG).await;
        let keys: Vec<_> = (0..200).map(|number| key(&format!("k{number}"))).collect();
        let items = keys.iter().map(|key| (key.clone(), "v".into(), leasehold_core::Expiry::Never)).collect();
        // One trip for each key would take four deadlines.
        link.delay_answers(SHORT);
        store.set_many(items).await.unwrap();
        assert!(store.get_many(&keys).await.unwrap().iter().all(Option::is_some));
        assert!(store.remove_many(&keys).await.unwrap().iter().all(|outcome| outcome.is_applied()));
    })
    .await;
}

#[tokio::test]
async fn hints_come_back_after_an_outage_and_say_that_some_may_be_missing() {
    on_each(async |server| {
        let (waiting, link) = behind_a_link(&server, LONG).await;
        let other = store(&server).await;
        let mut of_key = waiting.watch(&key("a")).await.unwrap();
        let mut of_prefix = waiting.watch_prefix(&KeyPrefix::new("a").unwrap()).await.unwrap();

        link.reset_connections();
        for hints in [&mut of_key, &mut of_prefix] {
            assert_eq!(timeout(DEADLINE, hints.next()).await.unwrap(), Some(Hint::Anything));
        }
        added(&other, &key("a"), "v").await;
        assert_eq!(other.try_remove(&key("a"), b"v").await.unwrap(), Outcome::Applied);
        for hints in [&mut of_key, &mut of_prefix] {
            assert_eq!(timeout(DEADLINE, hints.next()).await.unwrap(), Some(Hint::Changed(key("a"))));
        }
    })
    .await;
}

#[tokio::test]
async fn listening_through_a_dead_link_fails_in_time_and_leaves_nothing_behind() {
    on_each(async |server| {
        let (store, link) = behind_a_link(&server, SHORT).await;
        for refused in [true, false] {
            if refused {
                link.refuse();
            } else {
                link.black_hole_dropping();
            }
            let error = timeout(DEADLINE, store.watch(&key("a"))).await.unwrap().unwrap_err();
            assert_eq!(error.effect(), Effect::None, "{error:?}");
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error:?}");
        }
        link.pass();
        eventually(DEADLINE, async || store.watch(&key("a")).await.is_ok()).await;
        eventually(DEADLINE, async || server.command(&["PUBSUB", "CHANNELS"]).await.is_empty()).await;
    })
    .await;
}

#[tokio::test]
async fn a_given_connection_serves_until_it_is_closed() {
    on_each(async |server| {
        let client = redis::Client::open(server.url()).unwrap();
        let unlimited = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&unlimited).await.unwrap();
        let given = RedisStore::with_connection(connection, &config(&server)).unwrap();
        let other = store(&server).await;

        added(&given, &key("a"), "v").await;
        assert_eq!(value(&other, &key("a")).await.unwrap(), "v");
        assert!(!given.capabilities().hints);
        assert_eq!(given.watch(&key("a")).await.unwrap_err().kind(), ErrorKind::Unsupported);

        server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
        let error = given.get(&key("a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        let error = timeout(DEADLINE, given.try_remove(&key("a"), b"v")).await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error:?}");
        assert!(format!("{error:#}").contains("given is closed"), "{error:#}");
    })
    .await;
}

#[tokio::test]
async fn a_given_client_makes_connections_that_are_made_anew() {
    on_each(async |server| {
        let client = redis::Client::open(server.url()).unwrap();
        let store = RedisStore::with_client(&client, &config(&server)).await.unwrap();
        added(&store, &key("a"), "v").await;
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
        eventually(DEADLINE, async || store.get(&key("a")).await.is_ok()).await;
        assert!(store.watch(&key("a")).await.is_ok());
    })
    .await;
}
