//! Calls that are made at the same time are sent together, and stay apart in everything else.

mod support;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::{AddOutcome, AtomicStore, CacheStore, Effect, ErrorKind, Expiry, Outcome};
use leasehold_redis::RedisStore;
use leasehold_testkit::{Family, Proxy, RedisServer, eventually};
use support::{DEADLINE, MINUTE, added, calls, config, config_through, key, on_each, store, ttl, value};
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

/// Polls once, which sends what is to be sent as far as it gets without waiting.
async fn begin<T>(future: &mut std::pin::Pin<&mut impl Future<Output = T>>) {
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
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
        let link = Proxy::start(server.addr());
        let config = config_through(&server, &link, Duration::from_secs(15));
        let store = RedisStore::connect(config).await.unwrap();
        added(&store, &key("warm"), "v").await;
        link.delay_answers(Duration::from_millis(100));

        let (one, two, three) = (key("one"), key("two"), key("three"));
        // The first is sent at once; the second gathers the others, and is dropped meanwhile.
        let mut ahead = pin!(store.try_add(&one, "v".into(), ttl(MINUTE)));
        begin(&mut ahead).await;
        let mut gathered = pin!(store.try_add(&three, "v".into(), ttl(MINUTE)));
        {
            let mut gatherer = pin!(store.try_add(&two, "v".into(), ttl(MINUTE)));
            begin(&mut gatherer).await;
            begin(&mut gathered).await;
        }
        assert!(matches!(timeout(DEADLINE, gathered).await.unwrap(), Ok(AddOutcome::Added(_))));
        assert!(matches!(timeout(DEADLINE, ahead).await.unwrap(), Ok(AddOutcome::Added(_))));
        // Those who come later are served as ever.
        assert!(add_many(&store, 8).await.iter().all(Result::is_ok));
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
