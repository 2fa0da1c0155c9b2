//! What the store costs the server, what it leaves there, and what it makes of the server's answers.

mod support;

use std::time::Duration;

use leasehold_core::idempotency::Idempotency;
use leasehold_core::lock::{Locks, Renewal};
use leasehold_core::{AddOutcome, AtomicStore, CacheStore, Effect, Error, ErrorKind, Expiry, Hint, KeyPrefix, Outcome};
use leasehold_redis::{RedisConfig, RedisStore, redis};
use leasehold_testkit::{Family, RedisServer, eventually};
use support::{DEADLINE, MINUTE, added, begin, calls, config, faces, key, on_each, store, traced, ttl, value};
use tokio::time::timeout;

/// How many commands clients have sent, apart from those that scripts call and the question itself.
async fn sent(server: &RedisServer) -> u64 {
    let by_scripts = called_by_scripts();
    let stats = server.command(&["INFO", "commandstats"]).await;
    let calls = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
    calls
        .filter(|(command, _)| *command != "info" && !by_scripts.iter().any(|by_script| by_script == command))
        .filter_map(|(_, calls)| calls.split_once(',')?.0.parse::<u64>().ok())
        .sum()
}

/// The commands in the scripts, as the statistics name them.
fn called_by_scripts() -> Vec<String> {
    let scripts = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts")).expect("the scripts are there");
    let texts = scripts.filter_map(|script| std::fs::read_to_string(script.ok()?.path()).ok());
    let commands = texts.flat_map(|text| {
        let calls = text.split("call('").skip(1);
        calls.filter_map(|call| Some(call.split_once('\'')?.0.to_lowercase())).collect::<Vec<_>>()
    });
    commands.collect()
}

#[tokio::test]
async fn a_lease_is_acquired_renewed_and_released_in_one_trip_each() {
    on_each(async |server| {
        let locks = Locks::new(store(&server).await);
        // Once, so that the server knows the script.
        let _ = locks.lock("warm").acquire().await.unwrap().release().await.unwrap();

        let (before, by_hash) = (sent(&server).await, calls(&server, "evalsha").await);
        let lease = locks.lock("orders:42").acquire().await.unwrap();
        assert_eq!(sent(&server).await - before, 1);
        lease.renew().await.unwrap();
        assert_eq!(sent(&server).await - before, 2);
        let _ = lease.release().await.unwrap();
        assert_eq!(sent(&server).await - before, 3);
        assert_eq!(calls(&server, "evalsha").await - by_hash, 3);
    })
    .await;
}

#[tokio::test]
async fn a_first_call_is_two_trips_and_a_replay_one() {
    on_each(async |server| {
        let once = Idempotency::new(store(&server).await);
        // Once, so that the server knows the script.
        let _ = once.call("charge", "warm", &()).run(async || 1).await.unwrap();
        for (trips, replayed) in [(2, false), (1, true), (1, true)] {
            let before = sent(&server).await;
            let answer = once.call("charge", "k", &()).run(async || 1).await.unwrap();
            assert_eq!((answer.replayed, sent(&server).await - before), (replayed, trips));
        }
    })
    .await;
}

#[tokio::test]
async fn each_operation_is_one_command() {
    on_each(async |server| {
        let store = store(&server).await;
        let key = key("a");
        let everything = async || {
            let _ = store.try_add(&key, "v".into(), ttl(MINUTE)).await.unwrap();
            let _ = store.try_add(&key, "v".into(), ttl(MINUTE)).await.unwrap();
            store.try_replace(&key, b"v", "w".into(), ttl(MINUTE)).await.map(drop).unwrap();
            let _ = store.try_expire(&key, b"w", ttl(MINUTE)).await.unwrap();
            store.get(&key).await.unwrap();
            store.set(&key, "s".into(), Expiry::Sliding(ttl(MINUTE))).await.unwrap();
            store.get(&key).await.unwrap();
            let _ = store.try_remove(&key, b"s").await.unwrap();
            let _ = store.remove(&key).await.unwrap();
            let _ = store.scan(&KeyPrefix::new("").unwrap(), None).await.unwrap();
        };
        everything().await;
        let before = sent(&server).await;
        everything().await;
        assert_eq!(sent(&server).await - before, 10);
    })
    .await;
}

#[tokio::test]
async fn a_server_that_forgot_the_script_is_told_it_once() {
    on_each(async |server| {
        let store = store(&server).await;
        added(&store, &key("a"), "v").await;
        server.command(&["SCRIPT", "FLUSH"]).await;
        let (by_hash, by_text) = (calls(&server, "evalsha").await, calls(&server, "eval").await);
        added(&store, &key("b"), "v").await;
        added(&store, &key("c"), "v").await;
        assert_eq!(calls(&server, "evalsha").await - by_hash, 2);
        assert_eq!(calls(&server, "eval").await - by_text, 1);

        server.command(&["SCRIPT", "FLUSH"]).await;
        let keys = ["a", "b", "c"].map(key);
        assert!(store.remove_many(&keys).await.unwrap().iter().all(|outcome| outcome.is_applied()));
    })
    .await;
}

#[tokio::test]
async fn waiting_costs_one_subscription_however_many_wait() {
    on_each(async |server| {
        let store = store(&server).await;
        let mut hints = Vec::new();
        for _ in 0..10 {
            hints.push(store.watch(&key("a")).await.unwrap());
        }
        assert_eq!(calls(&server, "subscribe").await, 1);
        assert_eq!(server.command(&["PUBSUB", "CHANNELS"]).await.lines().count(), 1);
        hints.truncate(1);
        let _other = store.watch(&key("b")).await.unwrap();
        assert_eq!(server.command(&["PUBSUB", "CHANNELS"]).await.lines().count(), 2);
        assert_eq!(calls(&server, "hello").await, 2, "one connection for calls and one for hints");
        hints.clear();
        eventually(DEADLINE, async || server.command(&["PUBSUB", "CHANNELS"]).await.lines().count() == 1).await;
    })
    .await;
}

#[tokio::test]
async fn waiting_for_a_lease_is_two_tries_and_one_subscription_however_many_wait() {
    on_each(async |server| {
        let (theirs, ours) = (store(&server).await, store(&server).await);
        // The connection for hints, and the script once, so that the server knows it.
        let _listening = ours.watch(&key("warm")).await.unwrap();
        let (theirs, ours) = (Locks::new(theirs), Locks::new(ours));
        let _ = theirs.lock("warm").acquire().await.unwrap().release().await.unwrap();

        let held = theirs.lock("orders:42").renewal(Renewal::Off).acquire().await.unwrap();
        let before = (sent(&server).await, calls(&server, "evalsha").await, calls(&server, "subscribe").await);
        let since = async || {
            let now = (sent(&server).await, calls(&server, "evalsha").await, calls(&server, "subscribe").await);
            (now.0 - before.0, now.1 - before.1, now.2 - before.2)
        };
        let mut waiting = vec![tokio::spawn(ours.lock("orders:42").acquire())];
        eventually(DEADLINE, async || since().await == (3, 2, 1)).await;
        for _ in 0..20 {
            let mut one = Box::pin(ours.lock("orders:42").acquire());
            begin(&mut one.as_mut()).await;
            waiting.push(tokio::spawn(one));
            // Whoever asked again and again would have done so by the last of these looks.
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(since().await, (3, 2, 1));
        }

        let _ = held.release().await.unwrap();
        for one in waiting {
            let _ = timeout(DEADLINE, one).await.unwrap().unwrap().unwrap().release().await.unwrap();
        }
        assert_eq!(calls(&server, "subscribe").await - before.2, 1, "all shared one listener");
    })
    .await;
}

#[tokio::test]
async fn what_is_gone_leaves_the_shared_floor_alone() {
    on_each(async |server| {
        let store = store(&server).await;
        let batch = |ttl: u64| {
            let keys = (0..5000).map(move |number| key(&format!("{ttl}:{number}")));
            keys.map(move |key| (key, "v".into(), Expiry::After(support::ttl(ttl)))).collect::<Vec<_>>()
        };
        let keys: Vec<_> = batch(MINUTE).into_iter().map(|(key, ..)| key).collect();
        store.set_many(batch(MINUTE)).await.unwrap();
        assert!(store.remove_many(&keys).await.unwrap().iter().all(|outcome| outcome.is_applied()));
        store.set_many(batch(1)).await.unwrap();
        eventually(DEADLINE, async || server.command(&["KEYS", "*"]).await == "leasehold:{floor}").await;
    })
    .await;
}

#[tokio::test]
async fn revisions_rise_above_a_floor_that_is_ahead_of_the_clock() {
    on_each(async |server| {
        let store = store(&server).await;
        let first = added(&store, &key("a"), "v").await;
        // As if the clock had been a year ahead when it was stored.
        const FLOOR: &str = "leasehold:{floor}";
        let floor = first.get() + 365 * 24 * 3600 * 1_000_000;
        assert_eq!(server.command(&["GET", FLOOR]).await, first.to_string(), "in full digits");
        server.command(&["SET", FLOOR, &floor.to_string()]).await;

        assert_eq!(store.try_remove(&key("a"), b"v").await.unwrap(), Outcome::Applied);
        assert_eq!(added(&store, &key("a"), "v").await.get(), floor + 1);
        assert_eq!(store.set(&key("a"), "w".into(), Expiry::Never).await.unwrap().get(), floor + 2);
        // After a flush they still rise above what the clock has passed.
        server.command(&["FLUSHALL"]).await;
        assert!(added(&store, &key("a"), "v").await > first);
    })
    .await;
}

#[tokio::test]
async fn an_entry_in_its_last_millisecond_has_time_left() {
    on_each(async |server| {
        let store = store(&server).await;
        for number in 0..300 {
            let key = key(&format!("k{number}"));
            if let AddOutcome::Added(_) = store.try_add(&key, "v".into(), ttl(3)).await.unwrap() {
                while let Some(entry) = store.get(&key).await.unwrap() {
                    let left = entry.time_left.unwrap();
                    assert!(!left.is_zero() && left <= Duration::from_millis(3), "{left:?}");
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn in_a_cluster_all_of_a_key_is_in_one_slot() {
    for family in Family::ALL {
        let server = RedisServer::builder().family(family).config("cluster-enabled", "yes").start().await;
        server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
        eventually(DEADLINE, async || server.command(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok")).await;
        let store = store(&server).await;
        for text in ["a", "}x", "{}x", "{a}b", "}{", "a{b}c{d}", "ü{"] {
            let key = key(text);
            let mut hints = store.watch(&key).await.unwrap();
            added(&store, &key, "v").await;
            store.try_replace(&key, b"v", "w".into(), ttl(MINUTE)).await.map(drop).unwrap();
            assert_eq!(timeout(DEADLINE, hints.next()).await.unwrap(), Some(Hint::Changed(key.clone())));
            assert_eq!(store.get_many(std::slice::from_ref(&key)).await.unwrap()[0].as_ref().unwrap().value, "w");
        }
        let page = store.scan(&KeyPrefix::new("a").unwrap(), None).await.unwrap();
        assert!(page.keys.iter().all(|key| key.as_str().starts_with('a')), "{page:?}");
        // Each slot has a floor of its own, also above the clock.
        let tag = server.command(&["KEYS", "leasehold:{???}:{}x"]).await;
        let floor = tag.strip_suffix(":{}x").unwrap();
        let ahead = server.command(&["GET", floor]).await.parse::<u64>().unwrap() + 365 * 24 * 3600 * 1_000_000;
        server.command(&["SET", floor, &ahead.to_string()]).await;
        assert_eq!(store.set(&key("{}x"), "w".into(), Expiry::Never).await.unwrap().get(), ahead + 1);
        assert!(store.set(&key("a"), "w".into(), Expiry::Never).await.unwrap().get() < ahead);
    }
}

#[tokio::test]
async fn databases_and_prefixes_are_apart_and_so_are_their_hints() {
    on_each(async |server| {
        let ours = store(&server).await;
        let other_database = RedisStore::connect(config(&server).with_database(1)).await.unwrap();
        let other_prefix = RedisStore::connect(config(&server).with_key_prefix("app:")).await.unwrap();
        let everything = KeyPrefix::new("").unwrap();
        let mut hints = ours.watch_prefix(&everything).await.unwrap();
        for other in [&other_database, &other_prefix] {
            added(other, &key("theirs"), "v").await;
            assert_eq!(value(&ours, &key("theirs")).await, None);
            assert_eq!(ours.scan(&everything, None).await.unwrap().keys, []);
            assert_eq!(other.remove(&key("theirs")).await.unwrap(), Outcome::Applied);
        }
        added(&ours, &key("ours"), "v").await;
        assert_eq!(ours.remove(&key("ours")).await.unwrap(), Outcome::Applied);
        // The server hands hints on in the order in which they came.
        assert_eq!(timeout(DEADLINE, hints.next()).await.unwrap(), Some(Hint::Changed(key("ours"))));
    })
    .await;
}

/// A refused write: its error has no effect, and the server has nothing of it.
async fn assert_refused(server: &RedisServer, kind: ErrorKind, error: Error) {
    assert_eq!((error.kind(), error.effect()), (kind, Effect::None), "{error:?}");
    assert!(!faces(&error).contains("s3cr3t"), "{error:?}");
    assert_eq!(server.command(&["DBSIZE"]).await, "0", "{error:?}");
}

#[tokio::test]
async fn a_refused_write_has_no_effect_and_shows_no_value() {
    on_each(async |server| {
        let store = store(&server).await;
        let add = async || store.try_add(&key("a"), "s3cr3t".into(), ttl(MINUTE)).await.unwrap_err();
        let replace = async || store.try_replace(&key("a"), b"s3cr3t", "s3cr3t".into(), ttl(MINUTE)).await;
        let set = async || store.set(&key("a"), "s3cr3t".into(), Expiry::Never).await.unwrap_err();

        server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
        assert_refused(&server, ErrorKind::Unavailable, add().await).await;
        assert_refused(&server, ErrorKind::Unavailable, set().await).await;
        assert!(replace().await.is_ok(), "what does not apply writes nothing");
        server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;

        server.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
        assert_refused(&server, ErrorKind::Unavailable, add().await).await;
        assert_refused(&server, ErrorKind::Unavailable, set().await).await;
        server.command(&["REPLICAOF", "NO", "ONE"]).await;

        server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
        assert_refused(&server, ErrorKind::Unavailable, add().await).await;
        assert_refused(&server, ErrorKind::Unavailable, set().await).await;
        server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;

        // The commands that scripts call need rights of their own.
        server.command(&["ACL", "SETUSER", "default", "-set"]).await;
        assert_refused(&server, ErrorKind::Unauthorized, add().await).await;
        assert_refused(&server, ErrorKind::Unauthorized, set().await).await;
        server.command(&["ACL", "SETUSER", "default", "+set", "-evalsha"]).await;
        assert_refused(&server, ErrorKind::Unauthorized, add().await).await;
        server.command(&["ACL", "SETUSER", "default", "+evalsha"]).await;
        added(&store, &key("a"), "v").await;
    })
    .await;
}

#[tokio::test]
async fn a_batch_refused_in_part_may_have_been_applied() {
    on_each(async |server| {
        let store = store(&server).await;
        added(&store, &key("a"), "v").await;
        // A name of another type is refused by a read, and does not keep the other key from being removed.
        let misplaced = server.command(&["KEYS", "leasehold:*:a"]).await;
        added(&store, &key("b"), "v").await;
        server.command(&["DEL", &misplaced]).await;
        server.command(&["LPUSH", &misplaced, "x"]).await;
        let error = store.get_many(&[key("a"), key("b")]).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, Effect::Unknown), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn under_full_memory_leases_are_still_renewed_and_released() {
    on_each(async |server| {
        let store = store(&server).await;
        added(&store, &key("a"), "v").await;
        added(&store, &key("b"), "v").await;
        store.set(&key("c"), "v".into(), Expiry::Sliding(ttl(MINUTE))).await.unwrap();
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
        assert_eq!(store.try_expire(&key("a"), b"v", ttl(MINUTE)).await.unwrap(), Outcome::Applied);
        assert_eq!(store.try_remove(&key("a"), b"v").await.unwrap(), Outcome::Applied);
        assert_eq!(store.remove(&key("b")).await.unwrap(), Outcome::Applied);
        assert_eq!(value(&store, &key("c")).await.unwrap(), "v");
    })
    .await;
}

#[tokio::test]
async fn a_server_busy_with_a_script_refuses_without_effect() {
    on_each(async |server| {
        server.command(&["CONFIG", "SET", "busy-reply-threshold", "1"]).await;
        let store = store(&server).await;
        added(&store, &key("a"), "v").await;
        let client = redis::Client::open(server.url()).unwrap();
        let unlimited = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&unlimited).await.unwrap();
        let endless = tokio::spawn(async move {
            redis::cmd("EVAL").arg("while true do end").arg(0).exec_async(&mut connection).await
        });
        eventually(DEADLINE, async || match store.try_add(&key("b"), "v".into(), ttl(MINUTE)).await {
            // The script has yet to begin.
            Ok(_) => false,
            Err(error) => {
                assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error:?}");
                true
            }
        })
        .await;
        server.command(&["SCRIPT", "KILL"]).await;
        assert!(timeout(DEADLINE, endless).await.unwrap().unwrap().is_err());
    })
    .await;
}

#[tokio::test]
async fn what_others_stored_there_is_corrupt() {
    on_each(async |server| {
        let store = store(&server).await;
        added(&store, &key("a"), "v").await;
        let name = server.command(&["KEYS", "leasehold:*:a"]).await;
        server.command(&["SET", &name, "s3cr3t"]).await;
        let expected = (ErrorKind::Corrupt, Effect::None);
        for error in [
            store.get(&key("a")).await.unwrap_err(),
            store.try_add(&key("a"), "v".into(), ttl(MINUTE)).await.unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.effect()), expected, "{error:?}");
            assert!(!faces(&error).contains("s3cr3t"));
        }
        assert_eq!(store.try_remove(&key("a"), b"s3cr3t").await.unwrap(), Outcome::NotApplied);
        server.command(&["DEL", &name]).await;
        server.command(&["LPUSH", &name, "s3cr3t"]).await;
        for error in [
            store.get(&key("a")).await.unwrap_err(),
            store.try_add(&key("a"), "v".into(), ttl(MINUTE)).await.unwrap_err(),
            store.try_remove(&key("a"), b"v").await.unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.effect()), expected, "{error:?}");
        }
        // What is set or removed whatever is there is.
        store.set(&key("a"), "v".into(), Expiry::Never).await.unwrap();
        assert_eq!(value(&store, &key("a")).await.unwrap(), "v");
    })
    .await;
}

#[tokio::test]
async fn a_server_without_scripts_is_unsupported_and_its_answer_not_repeated() {
    for family in Family::ALL {
        let server = RedisServer::builder().family(family).config("rename-command", "EVALSHA \"\"").start().await;
        let error = store(&server).await.try_add(&key("a"), "s3cr3t".into(), ttl(MINUTE)).await.unwrap_err();
        // The server quotes what it does not understand.
        assert_refused(&server, ErrorKind::Unsupported, error).await;
    }
}

#[tokio::test]
async fn without_a_right_to_channels_only_hints_are_missing() {
    on_each(async |server| {
        server.command(&["ACL", "SETUSER", "app", "on", ">pw", "~leasehold:*", "+@all", "resetchannels"]).await;
        let store = RedisStore::connect(config(&server).with_credentials("app", "pw")).await.unwrap();
        added(&store, &key("a"), "v").await;
        assert_eq!(store.try_remove(&key("a"), b"v").await.unwrap(), Outcome::Applied);
        let error = timeout(DEADLINE, store.watch(&key("a"))).await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unauthorized, Effect::None), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn no_secret_is_shown_whatever_fails() {
    for family in Family::ALL {
        let server = RedisServer::builder().family(family).user("app", "hunter2").start().await;
        let (trace, _traced) = traced();
        let right = RedisStore::connect(config(&server)).await.unwrap();
        added(&right, &key("a"), "s3cr3t").await;
        let mut shown = format!("{right:?} {:?}", config(&server));

        let wrong = config(&server).with_credentials("app", "letmein7");
        shown += &format!("{wrong:?}");
        let error = RedisStore::connect(wrong).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unauthorized, Effect::None), "{error:?}");
        shown += &faces(&error);
        let nobody = RedisConfig::tcp("127.0.0.1", server.port());
        let error = RedisStore::connect(nobody).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error:?}");
        shown += &faces(&error);

        server.kill().await;
        let gone = RedisStore::connect(config(&server)).await.unwrap_err();
        assert_eq!((gone.kind(), gone.effect()), (ErrorKind::Unavailable, Effect::None), "{gone:?}");
        shown += &faces(&gone);
        shown += &faces(&right.get(&key("a")).await.unwrap_err());
        shown += &trace.text();
        for secret in ["hunter2", "letmein7", "s3cr3t"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

#[tokio::test]
async fn a_server_that_may_evict_leases_is_warned_of() {
    for (policy, is_warned_of) in [("volatile-lru", true), ("allkeys-random", true), ("noeviction", false)] {
        let server = RedisServer::builder().eviction("64mb", policy).start().await;
        let (trace, traced) = traced();
        let _store = store(&server).await;
        drop(traced);
        assert_eq!(trace.text().contains("evict leases"), is_warned_of, "{policy}: {}", trace.text());
    }
    // Who may not ask connects all the same.
    let server = RedisServer::start().await;
    server.command(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-info"]).await;
    let store = RedisStore::connect(config(&server).with_credentials("app", "pw")).await.unwrap();
    added(&store, &key("a"), "v").await;
}

#[tokio::test]
async fn a_limit_of_for_ever_is_refused_and_one_of_a_day_is_served() {
    let server = RedisServer::start().await;
    let client = redis::Client::open(server.url()).unwrap();
    for endless in [config(&server).with_deadline(Duration::MAX), config(&server).with_connect_timeout(Duration::MAX)] {
        let error = RedisStore::with_client(&client, &endless).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None), "{error:?}");
        let error = RedisStore::connect(endless).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None), "{error:?}");
    }
    let day = Duration::from_secs(24 * 3600);
    let store = RedisStore::connect(config(&server).with_deadline(day).with_connect_timeout(day)).await.unwrap();
    added(&store, &key("a"), "v").await;
    assert!(store.watch(&key("a")).await.is_ok());
}

#[tokio::test]
async fn a_unix_socket_is_an_address_too() {
    for family in Family::ALL {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("redis.sock");
        let path = socket.to_str().unwrap();
        let _server = RedisServer::builder().family(family).config("unixsocket", path).start().await;
        let config = RedisConfig::from_url(&format!("redis+unix://{path}?database=3")).unwrap();
        let store = RedisStore::connect(config).await.unwrap();
        added(&store, &key("a"), "v").await;
        assert_eq!(value(&store, &key("a")).await.unwrap(), "v");
    }
}
