//! Calls that are made at the same time are sent together, and stay apart in everything else.

mod support;

use std::pin::pin;
use std::time::Duration;

use leasehold_core::{AddOutcome, AtomicStore, CacheStore, Effect, ErrorKind, Expiry, Outcome, ReplaceOutcome};
use leasehold_redis::RedisStore;
use leasehold_testkit::{Family, Proxy, RedisServer, eventually};
use support::{DEADLINE, MINUTE, added, begin, calls, config, config_through, key, on_each, store, ttl, value};
use tokio::time::timeout;

async fn add_many(store: &RedisStore, count: usize) -> Vec<Result<AddOutcome, leasehold_core::Error>> {
    let adding = (0..count).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { store.try_add(&key(&format!("k{number}")), "v".into(), ttl(MINUTE)).await })
    });
    let mut answers = Vec::new();
    for task in adding.collect::<Vec<_>>() {
        answers.push(timeout(DEADLINE, task).await.expect("an answer in time").expect("a task that does not panic"));
    }
    answers
}

#[tokio::test]
async fn what_is_asked_for_at_once_is_a_few_commands() {
    on_each(async |server| {
        let store = store(&server).await;
        added(&store, &key("warm"), "v").await;
        let before = calls(&server, "evalsha").await;
        assert!(add_many(&store, 64).await.iter().all(|answer| matches!(answer, Ok(AddOutcome::Added(_)))));
        // One goes ahead, and while it is under way the others gather.
        let sent = calls(&server, "evalsha").await - before;
        assert!(sent <= 8, "64 calls were {sent} commands");
        for number in 0..64 {
            assert_eq!(value(&store, &key(&format!("k{number}"))).await.unwrap(), "v");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_kinds_of_calls_at_once_each_get_their_own_answer() {
    on_each(async |server| {
        let store = store(&server).await;
        let workers = (0..32).map(|worker| {
            let store = store.clone();
            tokio::spawn(async move {
                let key = key(&format!("k{worker}"));
                let mut last = 0;
                for round in 0..30 {
                    let (mine, next) = (format!("{worker}:{round}"), format!("{worker}:{round}:next"));
                    let AddOutcome::Added(revision) =
                        store.try_add(&key, mine.clone().into(), ttl(MINUTE)).await.unwrap()
                    else {
                        panic!("{mine} is there already")
                    };
                    assert!(revision.get() > last);
                    assert_eq!(value(&store, &key).await.unwrap(), mine);
                    let _ = store.try_replace(&key, mine.as_bytes(), next.clone().into(), ttl(MINUTE)).await.unwrap();
                    assert_eq!(
                        store.try_expire(&key, mine.as_bytes(), ttl(MINUTE)).await.unwrap(),
                        Outcome::NotApplied
                    );
                    assert_eq!(store.try_expire(&key, next.as_bytes(), ttl(MINUTE)).await.unwrap(), Outcome::Applied);
                    last = store.set(&key, mine.clone().into(), Expiry::Sliding(ttl(MINUTE))).await.unwrap().get();
                    assert_eq!(value(&store, &key).await.unwrap(), mine);
                    assert_eq!(store.try_remove(&key, mine.as_bytes()).await.unwrap(), Outcome::Applied);
                    assert_eq!(store.remove(&key).await.unwrap(), Outcome::NotApplied);
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            timeout(DEADLINE, worker).await.unwrap().unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn one_that_is_refused_leaves_the_others_alone() {
    on_each(async |server| {
        let store = store(&server).await;
        added(&store, &key("k7"), "v").await;
        let name = server.command(&["KEYS", "leasehold:*:k7"]).await;
        server.command(&["DEL", &name]).await;
        server.command(&["LPUSH", &name, "of another type"]).await;
        for (number, answer) in add_many(&store, 20).await.into_iter().enumerate() {
            match answer {
                Ok(AddOutcome::Added(_)) => assert_ne!(number, 7),
                Err(error) if number == 7 => {
                    assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, Effect::None), "{error:?}");
                }
                other => panic!("{number}: {other:?}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_floor_that_is_no_number_is_corrupt_and_nothing_is_written() {
    on_each(async |server| {
        let store = store(&server).await;
        added(&store, &key("a"), "v").await;
        assert_eq!(store.remove(&key("a")).await.unwrap(), Outcome::Applied);
        let floor = server.command(&["KEYS", "*"]).await;
        server.command(&["SET", &floor, "x"]).await;
        for error in [
            store.try_add(&key("a"), "v".into(), ttl(MINUTE)).await.unwrap_err(),
            store.set(&key("a"), "v".into(), Expiry::Never).await.unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, Effect::None), "{error:?}");
        }
        assert_eq!(server.command(&["KEYS", "*"]).await, floor);
    })
    .await;
}

#[tokio::test]
async fn whoever_leaves_while_others_gather_takes_nobody_along() {
    on_each(async |server| {
        let store = store(&server).await;
        added(&store, &key("warm"), "v").await;
        let before = calls(&server, "evalsha").await;
        let (ahead, first, second) = (key("ahead"), key("first"), key("second"));
        let mut goes_ahead = pin!(store.get(&ahead));
        begin(&mut goes_ahead).await;
        let mut gathered = pin!(store.try_add(&second, "v".into(), ttl(MINUTE)));
        {
            let mut leaving = pin!(store.try_add(&first, "v".into(), ttl(MINUTE)));
            begin(&mut leaving).await;
            begin(&mut gathered).await;
        }
        assert!(matches!(timeout(DEADLINE, gathered).await.unwrap(), Ok(AddOutcome::Added(_))));
        goes_ahead.await.unwrap();
        assert_eq!(calls(&server, "evalsha").await - before, 2);
        assert_eq!(value(&store, &first).await, None, "who has left is left out");
        // Those who come later are served as ever.
        assert!(add_many(&store, 8).await.iter().all(Result::is_ok));
    })
    .await;
}

#[tokio::test]
async fn calls_that_nobody_polls_hold_up_no_others() {
    on_each(async |server| {
        let store = store(&server).await;
        let keys: Vec<_> = (0..300).map(|number| key(&format!("k{number}"))).collect();
        for unpolled in [1, 2, 3, 10, 300] {
            let mut calls: Vec<_> = keys.iter().map(|key| store.get(key)).take(unpolled).collect();
            for call in &mut calls {
                begin(&mut call.as_mut()).await;
                // Some are on their way already when the others come.
                if unpolled <= 3 {
                    tokio::task::yield_now().await;
                }
            }
            timeout(DEADLINE, store.get(&key("other"))).await.expect("an answer in time").unwrap();
            for call in calls {
                timeout(DEADLINE, call).await.expect("an answer in time").unwrap();
            }
        }
    })
    .await;
}

#[tokio::test]
async fn answers_that_are_far_away_hold_up_no_others() {
    on_each(async |server| {
        let link = Proxy::start(server.addr());
        let config = config_through(&server, &link, Duration::from_secs(15));
        let store = RedisStore::connect(config).await.unwrap();
        added(&store, &key("warm"), "v").await;
        link.black_hole();
        let mut sent = link.counts().request_bytes_read;
        let mut waiting = Vec::new();
        for number in 0..20 {
            let store = store.clone();
            waiting.push(tokio::spawn(async move { store.get(&key(&format!("k{number}"))).await }));
            // Each is sent, though none of those before it is answered.
            eventually(DEADLINE, async || link.counts().request_bytes_read > sent).await;
            sent = link.counts().request_bytes_read;
        }
        link.pass();
        for call in waiting {
            call.abort();
        }
    })
    .await;
}

#[tokio::test]
async fn one_key_that_two_add_or_remove_in_one_command_goes_to_one_of_them() {
    on_each(async |server| {
        let store = store(&server).await;
        let (key, taken) = (key("a"), key("taken"));
        added(&store, &taken, "v").await;
        let before = calls(&server, "evalsha").await;
        // What is asked for behind one that is on its way goes together.
        let ahead = self::key("ahead");
        let (_, one, other, third) = tokio::join!(
            store.get(&ahead),
            store.try_add(&key, "v".into(), ttl(MINUTE)),
            store.try_add(&key, "w".into(), ttl(MINUTE)),
            store.try_add(&taken, "w".into(), ttl(MINUTE)),
        );
        assert!(matches!(one, Ok(AddOutcome::Added(_))), "{one:?}");
        assert!(matches!(other, Ok(AddOutcome::Exists(entry)) if entry.value == "v"));
        assert!(matches!(third, Ok(AddOutcome::Exists(entry)) if entry.value == "v"));

        let answers = tokio::join!(
            store.get(&ahead),
            store.try_remove(&key, b"v"),
            store.try_remove(&key, b"v"),
            store.try_remove(&taken, b"w"),
        );
        let (one, other, third) = (answers.1.unwrap(), answers.2.unwrap(), answers.3.unwrap());
        assert_eq!((one, other, third), (Outcome::Applied, Outcome::NotApplied, Outcome::NotApplied));
        assert!(calls(&server, "evalsha").await - before <= 4, "each three were one command");
    })
    .await;
}

#[tokio::test]
async fn all_that_is_done_to_one_key_in_one_command_is_done_in_some_order() {
    on_each(async |server| {
        let store = store(&server).await;
        let (a, ahead) = (key("a"), key("ahead"));
        let mut last = added(&store, &a, "v").await;
        for _ in 0..20 {
            let before = calls(&server, "evalsha").await;
            let (_, added, replaced, removed, read) = tokio::join!(
                store.get(&ahead),
                store.try_add(&a, "w".into(), ttl(MINUTE)),
                store.try_replace(&a, b"v", "x".into(), ttl(MINUTE)),
                store.try_remove(&a, b"x"),
                store.get(&a),
            );
            assert_eq!(calls(&server, "evalsha").await - before, 2, "all four were one command");
            assert!(matches!(added, Ok(AddOutcome::Exists(entry)) if entry.value == "v"));
            let Ok(ReplaceOutcome::Applied(revision)) = replaced else { panic!("{replaced:?}") };
            assert!(revision > last);
            assert_eq!((removed.unwrap(), read.unwrap()), (Outcome::Applied, None));
            last = self::added(&store, &a, "v").await;
            assert!(last > revision);
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_refused_fails_nothing_of_another_kind_that_goes_with_it() {
    on_each(async |server| {
        let store = store(&server).await;
        let [ahead, new, old, foreign] = ["ahead", "new", "old", "foreign"].map(key);
        added(&store, &old, "v").await;
        store.set(&foreign, "v".into(), Expiry::Sliding(ttl(MINUTE))).await.unwrap();
        let name = server.command(&["KEYS", "leasehold:{???}:foreign"]).await;
        // A sliding entry without its terms, as somebody else may have stored.
        server.command(&["SET", &name, "~x"]).await;
        let before = calls(&server, "evalsha").await;
        let (_, added, removed, read) = tokio::join!(
            store.get(&ahead),
            store.try_add(&new, "v".into(), ttl(MINUTE)),
            store.try_remove(&old, b"v"),
            store.get(&foreign)
        );
        assert_eq!(calls(&server, "evalsha").await - before, 2);
        assert!(matches!(added, Ok(AddOutcome::Added(_))), "{added:?}");
        assert_eq!(removed.unwrap(), Outcome::Applied);
        let error = read.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, Effect::None), "{error:?}");

        // Who may not ask for the time gets no revision, and does the rest.
        server.command(&["ACL", "SETUSER", "default", "-time"]).await;
        let (_, removed, added, set) = tokio::join!(
            store.get(&ahead),
            store.try_remove(&new, b"v"),
            store.try_add(&old, "v".into(), ttl(MINUTE)),
            store.set(&old, "v".into(), Expiry::Sliding(ttl(MINUTE))),
        );
        assert_eq!(removed.unwrap(), Outcome::Applied);
        for error in [added.unwrap_err(), set.unwrap_err()] {
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Unauthorized, Effect::None), "{error:?}");
        }
        assert_eq!((value(&store, &new).await, value(&store, &old).await), (None, None));
    })
    .await;
}

#[tokio::test]
async fn those_who_are_sent_together_share_a_broken_connection_and_no_more() {
    on_each(async |server| {
        let link = Proxy::start(server.addr());
        let config = config_through(&server, &link, Duration::from_secs(15));
        let store = RedisStore::connect(config).await.unwrap();
        added(&store, &key("warm"), "v").await;
        link.cut_after("k19");
        for answer in add_many(&store, 20).await {
            if let Err(error) = answer {
                assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{error:?}");
            }
        }
        link.wait_for_sprung(1).await;
        assert!(store.get(&key("k19")).await.unwrap().is_some(), "it was sent, once");
    })
    .await;
}

#[tokio::test]
async fn a_cluster_that_refuses_them_together_gets_them_apart() {
    for family in Family::ALL {
        let server = RedisServer::builder().family(family).config("cluster-enabled", "yes").start().await;
        server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
        eventually(DEADLINE, async || server.command(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok")).await;
        // One who may not ask what kind of server it is.
        server.command(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info"]).await;
        for batch_first in [true, false] {
            let store = RedisStore::connect(config(&server).with_credentials("app", "pw")).await.unwrap();
            server.command(&["FLUSHALL"]).await;
            let items: Vec<_> =
                (0..200).map(|number| (key(&format!("b{number}")), "v".into(), Expiry::Never)).collect();
            let keys: Vec<_> = items.iter().map(|(key, ..)| key.clone()).collect();
            if batch_first {
                store.set_many(items).await.unwrap();
                assert!(store.get_many(&keys).await.unwrap().iter().all(Option::is_some));
            }
            assert!(add_many(&store, 64).await.iter().all(|answer| matches!(answer, Ok(AddOutcome::Added(_)))));
        }
    }
}

#[tokio::test]
async fn what_a_cluster_gets_apart_is_of_unknown_effect_when_the_link_breaks() {
    for family in Family::ALL {
        let server = RedisServer::builder().family(family).config("cluster-enabled", "yes").start().await;
        server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
        eventually(DEADLINE, async || server.command(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok")).await;
        added(&store(&server).await, &key("k1"), "v").await;
        let tag = server.command(&["KEYS", "leasehold:{???}:k1"]).await;
        server.command(&["FLUSHALL"]).await;

        server.command(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info"]).await;
        let link = Proxy::start(server.addr());
        let config = config_through(&server, &link, Duration::from_secs(15)).with_credentials("app", "pw");
        let store = RedisStore::connect(config).await.unwrap();
        // Refused together, and then sent with the floor of each slot.
        link.cut_after(format!("{}\r\n", tag.strip_suffix(":k1").unwrap()));
        let items = ["k0", "k1"].map(|name| (key(name), "v".into(), Expiry::Never));
        let error = store.set_many(items.into()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{error:?}");
        assert_eq!(value(&store, &key("k1")).await.unwrap(), "v", "it was sent, once");
    }
}

#[test]
fn a_runtime_that_nobody_drives_holds_up_no_others() {
    let driven = tokio::runtime::Runtime::new().unwrap();
    let parked = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_server, link, store) = driven.block_on(async {
        let server = RedisServer::start().await;
        let link = Proxy::start(server.addr());
        let store = RedisStore::connect(config_through(&server, &link, Duration::from_secs(15))).await.unwrap();
        added(&store, &key("warm"), "v").await;
        (server, link, store)
    });
    link.delay_answers(Duration::from_millis(5));
    for _ in 0..20 {
        let adding = driven.spawn({
            let store = store.clone();
            async move {
                for _ in 0..3 {
                    assert!(add_many(&store, 20).await.iter().all(Result::is_ok));
                }
            }
        });
        // It goes on a little after its answer, and then not at all.
        parked.block_on(async {
            for _ in 0..3 {
                store.get(&key("warm")).await.unwrap();
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
            }
        });
        driven.block_on(async { timeout(DEADLINE, adding).await.expect("answers in time").unwrap() });
    }
}

#[test]
fn calls_whose_runtime_ends_leave_the_store_to_others() {
    let lasting = tokio::runtime::Runtime::new().unwrap();
    let (_server, link, store) = lasting.block_on(async {
        let server = RedisServer::start().await;
        let link = Proxy::start(server.addr());
        let config = config_through(&server, &link, Duration::from_secs(15));
        let store = RedisStore::connect(config).await.unwrap();
        added(&store, &key("warm"), "v").await;
        (server, link, store)
    });
    for _ in 0..10 {
        // Some are on their way, and some gather behind them, when their runtime ends.
        link.black_hole();
        let ending = tokio::runtime::Runtime::new().unwrap();
        let before = link.counts().request_bytes_read;
        for number in 0..20 {
            let store = store.clone();
            ending.spawn(async move { store.get(&key(&format!("k{number}"))).await });
        }
        lasting.block_on(eventually(DEADLINE, async || link.counts().request_bytes_read > before));
        ending.shutdown_background();
        link.pass();
        let answers = lasting.block_on(add_many(&store, 20));
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }
}
