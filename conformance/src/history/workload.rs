use std::time::Duration;

/// What the clients of a recording do: seeded, so that one number tells it again.
///
/// Each client works through a script of its own on the same few keys. They act on a common beat, so that they meet,
/// and often do the same to the same key; the times to live are a few beats, so that entries expire in the midst of it.
/// Every value written is unique.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Workload {
    /// How many clients act at once; 4 unless set.
    pub clients: u32,
    /// How many operations each makes; 12 unless set.
    pub operations: u32,
    /// How many keys they share; 3 unless set.
    pub keys: u32,
    /// How many histories are recorded; 20 unless set.
    pub rounds: u32,
    /// How many of them at the same time, each on keys of its own.
    pub rounds_at_once: u32,
    /// What decides everything.
    pub seed: u64,
    /// The scale of its times: a beat is half as long, and an entry lives from one beat to forty.
    pub tempo: Duration,
    /// How long a request and an answer may be on their way in addition to what the store takes, if at all. See
    /// [`Recorded::with_journeys`](crate::Recorded::with_journeys).
    pub journeys: Option<Duration>,
    /// How long a client waits for an answer.
    pub patience: Duration,
    /// Whether errors and missing answers are part of the game, as they are under injected faults. Otherwise the first
    /// one fails the run: a store that cannot be reached keeps no contract.
    pub errors_expected: bool,
}

impl Workload {
    /// A workload in real time for a store that takes a while to answer: about two seconds, all rounds at once.
    pub fn new(seed: u64) -> Self {
        Self {
            clients: 4,
            operations: 12,
            keys: 3,
            rounds: 20,
            rounds_at_once: 20,
            seed,
            tempo: Duration::from_millis(120),
            journeys: None,
            patience: Duration::from_secs(30),
            errors_expected: false,
        }
    }

    /// A workload for a store in this process that counts on tokio's clock, to be run on one thread with that clock
    /// paused: a round takes no time, and the same seed makes the same histories. Journeys of up to 5 ms make the
    /// clients overlap.
    pub fn stepped(seed: u64) -> Self {
        Self {
            rounds_at_once: 1,
            tempo: Duration::from_millis(20),
            journeys: Some(Duration::from_millis(5)),
            ..Self::new(seed)
        }
    }

    /// Sets the number of clients.
    #[must_use]
    pub fn with_clients(mut self, clients: u32) -> Self {
        self.clients = clients;
        self
    }

    /// Sets the number of operations of each client.
    #[must_use]
    pub fn with_operations(mut self, operations: u32) -> Self {
        self.operations = operations;
        self
    }

    /// Sets the number of keys; there is at least one.
    #[must_use]
    pub fn with_keys(mut self, keys: u32) -> Self {
        self.keys = keys.max(1);
        self
    }

    /// Sets the number of rounds.
    #[must_use]
    pub fn with_rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Sets how many rounds run at the same time; at least one does.
    #[must_use]
    pub fn with_rounds_at_once(mut self, rounds: u32) -> Self {
        self.rounds_at_once = rounds.max(1);
        self
    }

    /// Sets the scale of the times.
    #[must_use]
    pub fn with_tempo(mut self, tempo: Duration) -> Self {
        self.tempo = tempo;
        self
    }

    /// Sets how long requests and answers may be on their way.
    #[must_use]
    pub fn with_journeys(mut self, longest: Option<Duration>) -> Self {
        self.journeys = longest;
        self
    }

    /// Sets how long a client waits for an answer.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Makes errors and missing answers part of the game.
    #[must_use]
    pub fn expecting_errors(mut self) -> Self {
        self.errors_expected = true;
        self
    }
}
