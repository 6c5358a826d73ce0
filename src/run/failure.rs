//! Why a run did not succeed: kind, words, and the limit that ended it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::provider::{Fault, FaultClass};

words!(
    /// The contract's error kinds.
    ErrorKind {
        /// The run's own time limit.
        Deadline = "deadline",
        /// A person cancelled it.
        Cancelled = "cancelled",
        /// The daemon was stopped.
        Shutdown = "shutdown",
        /// The process died under it.
        Interrupted = "interrupted",
        /// What the server said, in words that fit no finer class.
        ProviderError = "provider_error",
        /// The server's own failure (5xx).
        ServerError = "server_error",
        /// Too many requests.
        RateLimit = "rate_limit",
        /// The provider has no capacity.
        Overloaded = "overloaded",
        /// The key was refused.
        Auth = "auth",
        /// The account was refused.
        Billing = "billing",
        /// No such model.
        ModelNotFound = "model_not_found",
        /// The request was refused as wrong.
        BadRequest = "bad_request",
        /// The prompt does not fit the model.
        ContextOverflow = "context_overflow",
        /// The provider refused the content.
        ContentFilter = "content_filter",
        /// The connection failed or broke.
        Network = "network",
        /// No progress within the idle window.
        IdleTimeout = "idle_timeout",
        /// No first token in time.
        FirstTokenTimeout = "first_token_timeout",
        /// The provider's own time limit, or its 408 or 504.
        ProviderTimeout = "provider_timeout",
        /// A foreign turn made no progress.
        ProgressTimeout = "progress_timeout",
        /// Set-up took too long.
        SetupTimeout = "setup_timeout",
        /// Neither a model call nor a tool started in time.
        StalledBeforeExecution = "stalled_before_execution",
        /// No lane in time.
        LaneTimeout = "lane_timeout",
        /// A tool's limit.
        ToolTimeout = "tool_timeout",
        /// The session's lock was not free in time.
        SessionBusy = "session_busy",
        /// Stuck, and recovered by force.
        Stuck = "stuck",
        /// The stream ended without an end.
        IncompleteStream = "incomplete_stream",
        /// The answer was cut by the output limit.
        TruncatedReply = "truncated_reply",
        /// A tool call was cut by the output limit.
        TruncatedToolCall = "truncated_tool_call",
        /// A tool call that does not parse.
        MalformedToolCall = "malformed_tool_call",
        /// A clean end with nothing in it.
        EmptyResponse = "empty_response",
        /// Not an answer of this API at all.
        NotAStream = "not_a_stream",
        /// The same call over and over.
        ToolLoop = "tool_loop",
        /// `limits.max_turns` requests without an answer.
        TurnLimit = "turn_limit",
        /// A token or money limit.
        Budget = "budget",
        /// A check failed.
        CheckFailed = "check_failed",
        /// The reply does not match its schema.
        OutputInvalid = "output_invalid",
        /// The gate's command failed.
        GateFailed = "gate_failed",
        /// The command job's command failed.
        CommandFailed = "command_failed",
        /// A hook blocked it.
        HookBlocked = "hook_blocked",
        /// The gate said no.
        Gate = "gate",
        /// A newer run replaced it.
        Replaced = "replaced",
        /// The demanded sandbox cannot be enforced here.
        SandboxUnavailable = "sandbox_unavailable",
        /// An MCP server of the job could not be started, or not be reached.
        McpUnavailable = "mcp_unavailable",
        /// No model could be reached.
        ModelUnreachable = "model_unreachable",
        /// The definition cannot be run as it is.
        Validation = "validation",
        /// A fault of ours.
        Internal = "internal",
    }
);

words!(
    /// Which limit ended a run.
    Limit {
        /// `limits.timeout`.
        Deadline = "deadline",
        /// The model idle window.
        Idle = "idle",
        /// `first_token_timeout`.
        FirstToken = "first_token",
        /// `models.providers.<id>.timeout`.
        Provider = "provider",
        /// `scheduler.setup_timeout`.
        Setup = "setup",
        /// From the runner's start to the first model call.
        PreExecution = "pre_execution",
        /// `limits.lane_timeout`.
        Lane = "lane",
        /// `limits.tool_timeout`.
        Tool = "tool",
        /// The session write lock.
        SessionLock = "session_lock",
        /// A foreign turn's progress window.
        Progress = "progress",
        /// The stuck-session threshold.
        Stuck = "stuck",
        /// `limits.max_turns`.
        Turns = "turns",
        /// A token or money limit.
        Budget = "budget",
        /// `scheduler.cleanup_timeout`.
        Cleanup = "cleanup",
    }
);

words!(
    /// How far a run had come; the last one is stored with every limit that ended a run.
    Phase {
        /// Set-up: is a local model there?
        Probe = "probe",
        /// Set-up: may it run?
        Gate = "gate",
        /// The turn runner has it.
        RunnerEntered = "runner_entered",
        /// Its folder is being made.
        Workspace = "workspace",
        /// Its model is being resolved.
        ModelResolution = "model_resolution",
        /// Its key is being read.
        Auth = "auth",
        /// Its prompt is being put together.
        Context = "context",
        /// A hook may answer in the model's place.
        BeforeReplyHook = "before_reply_hook",
        /// A model's answer is awaited.
        ModelCall = "model_call",
        /// The answer is being shaped.
        Output = "output",
        /// A tool works.
        Tool = "tool",
    }
);

/// The `error` of a run: what the contract's run object shows under that key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What it was.
    pub kind: ErrorKind,
    /// In words; a provider's own words are kept as they came, secrets masked.
    pub message: String,
    /// The limit that ended it, if one did.
    pub limit: Option<Limit>,
    /// That limit's configured value in milliseconds.
    pub limit_ms: Option<u64>,
    /// The last phase.
    pub phase: Option<Phase>,
    /// Whether the same request may do better later.
    pub retryable: bool,
}

impl Failure {
    /// A failure that no limit caused and that trying again will not mend.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            limit: None,
            limit_ms: None,
            phase: None,
            retryable: false,
        }
    }

    /// Names the limit and its configured value. A count (turns, tokens) has no milliseconds.
    #[must_use]
    pub fn by_limit(mut self, limit: Limit, value: Option<Duration>) -> Self {
        self.limit = Some(limit);
        self.limit_ms = value.map(|value| u64::try_from(value.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Names the last phase.
    #[must_use]
    pub fn in_phase(mut self, phase: Phase) -> Self {
        self.phase = Some(phase);
        self
    }

    /// Marks it as worth another try.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }
}

impl From<FaultClass> for ErrorKind {
    fn from(class: FaultClass) -> Self {
        match class {
            FaultClass::RateLimit => Self::RateLimit,
            FaultClass::Overloaded => Self::Overloaded,
            FaultClass::Network => Self::Network,
            FaultClass::Timeout => Self::ProviderTimeout,
            FaultClass::ServerError => Self::ServerError,
            FaultClass::Auth => Self::Auth,
            FaultClass::Billing => Self::Billing,
            FaultClass::ModelNotFound => Self::ModelNotFound,
            FaultClass::BadRequest => Self::BadRequest,
            FaultClass::ContextOverflow => Self::ContextOverflow,
            FaultClass::ContentFilter => Self::ContentFilter,
            FaultClass::Other => Self::ProviderError,
            FaultClass::Unreachable => Self::ModelUnreachable,
            FaultClass::IncompleteStream => Self::IncompleteStream,
            FaultClass::TruncatedToolCall => Self::TruncatedToolCall,
            FaultClass::MalformedToolCall => Self::MalformedToolCall,
            FaultClass::EmptyResponse => Self::EmptyResponse,
            FaultClass::NotAStream => Self::NotAStream,
        }
    }
}

impl From<&Fault> for Failure {
    fn from(fault: &Fault) -> Self {
        Self {
            retryable: fault.class.is_retryable(),
            ..Self::new(fault.class.into(), fault.message.clone()).in_phase(Phase::ModelCall)
        }
    }
}
