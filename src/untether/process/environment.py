"""The environment of an agent: an allowlist, so that what works in a terminal works here and our secrets stay ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import structlog

from ..model import Record
from ..sd_notify import is_managers

log = structlog.get_logger(__name__)

SESSION_VARIABLE = "UNTETHER_SESSION"  # "1" in every agent: hooks and tools of people ask for it
PROCESS_VARIABLE = "UNTETHER_PROCESS"  # the process id: by it a stop finds what the agent left behind

_SHORTEST_SECRET = 8  # a shorter one would be found in harmless values


class Names(Record, frozen=True):
    """A set of variable names: exact ones, all that start with a prefix, and exceptions from the prefixes."""

    exact: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    never: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        if name in self.never:
            return False
        return name in self.exact or name.startswith(self.prefixes)


def _exact(*groups: str) -> frozenset[str]:
    return frozenset(name for group in groups for name in group.split())


_PROXIES = "HTTP_PROXY HTTPS_PROXY ALL_PROXY FTP_PROXY NO_PROXY"

COMMON_NAMES = Names(
    exact=_exact(
        "PATH HOME USER LOGNAME SHELL TERM COLORTERM NO_COLOR FORCE_COLOR LANG LANGUAGE TZ TZDIR",
        "TMPDIR TMP TEMP EDITOR VISUAL PAGER EMAIL HOSTNAME MANPATH INFOPATH LD_LIBRARY_PATH PKG_CONFIG_PATH",
        _PROXIES,
        _PROXIES.lower(),
        # certificates
        "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS NODE_OPTIONS",
        "PIP_CERT CARGO_HTTP_CAINFO",
        # keys by agent, and who commits; GIT_DIR and its kin would bind every git command to one repository
        "SSH_AUTH_SOCK SSH_AGENT_PID SSH_ASKPASS GNUPGHOME GPG_TTY GPG_AGENT_INFO",
        "GIT_SSH GIT_SSH_COMMAND GIT_ASKPASS GIT_TERMINAL_PROMPT GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_EDITOR",
        # languages
        "VIRTUAL_ENV UV_CACHE_DIR UV_PYTHON PIPX_HOME PIPX_BIN_DIR POETRY_HOME WORKON_HOME",
        "CARGO_HOME GOPATH GOROOT GOBIN GOCACHE GOMODCACHE GOPROXY GOPRIVATE GOFLAGS GOTOOLCHAIN",
        "JAVA_HOME JDK_HOME M2_HOME MAVEN_HOME MAVEN_OPTS GRADLE_HOME GRADLE_USER_HOME SDKMAN_DIR KOTLIN_HOME",
        "ANDROID_HOME ANDROID_SDK_ROOT FLUTTER_ROOT DENO_DIR DENO_INSTALL BUN_INSTALL VOLTA_HOME PNPM_HOME",
        "NPM_CONFIG_PREFIX NPM_CONFIG_USERCONFIG NPM_CONFIG_CACHE npm_config_prefix npm_config_cache",
        "GEM_HOME GEM_PATH BUNDLE_PATH COMPOSER_HOME DOTNET_ROOT GHCUP_INSTALL_BASE_PREFIX",
        "STACK_ROOT MIX_HOME HEX_HOME OPAMROOT JULIA_DEPOT_PATH R_HOME R_LIBS_USER PLAYWRIGHT_BROWSERS_PATH",
        # containers, the desktop
        "DOCKER_HOST DOCKER_CONFIG DOCKER_CONTEXT DOCKER_CERT_PATH DOCKER_TLS_VERIFY CONTAINER_HOST KUBECONFIG",
        "DBUS_SESSION_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY XAUTHORITY DESKTOP_SESSION BROWSER",
        "WSL_DISTRO_NAME WSL_INTEROP",
    ),
    prefixes=(
        "LC_",
        "XDG_",
        "GIT_SSL_",
        "GIT_AUTHOR_",
        "GIT_COMMITTER_",
        "NVM_",
        "FNM_",
        "PYENV_",
        "CONDA_",
        "RUSTUP_",
        "RBENV_",
        "RVM_",
        "ASDF_",
        "MISE_",
        "NIX_",
        "HOMEBREW_",
    ),
    # These hold tokens.
    never=_exact("HOMEBREW_GITHUB_API_TOKEN HOMEBREW_DOCKER_REGISTRY_TOKEN NIX_CONFIG"),
)

# What Claude Code reads: its own, and those of the clouds that serve its models. Variables that tie a CLI to the
# terminal session in which the bridge happens to have been started are left out.
CLAUDE_NAMES = Names(
    exact=_exact(
        "DISABLE_AUTOUPDATER DISABLE_TELEMETRY DISABLE_ERROR_REPORTING DISABLE_PROMPT_CACHING DISABLE_COST_WARNINGS",
        "DISABLE_NON_ESSENTIAL_MODEL_CALLS MAX_THINKING_TOKENS MAX_MCP_OUTPUT_TOKENS MCP_TIMEOUT MCP_TOOL_TIMEOUT",
        "BASH_DEFAULT_TIMEOUT_MS BASH_MAX_TIMEOUT_MS BASH_MAX_OUTPUT_LENGTH ENABLE_TOOL_SEARCH USE_BUILTIN_RIPGREP",
        "API_TIMEOUT_MS IS_SANDBOX",
    ),
    prefixes=("ANTHROPIC_", "CLAUDE_", "AWS_", "GOOGLE_", "VERTEX_", "CLOUD_ML_", "CLOUDSDK_", "AZURE_", "OTEL_"),
    never=_exact("CLAUDE_CODE_ENTRYPOINT CLAUDE_CODE_SSE_PORT CLAUDE_CODE_MESSAGING_SOCKET"),
)

# Not even when asked for: the bridge's own variables hold its settings, with the secrets among them
# (UNTETHER__TRANSPORTS__…), and those of a service manager would let an agent speak for the service.
_OURS = "UNTETHER_"


def agent_environment(
    environ: Mapping[str, str],
    *,
    engine_names: Names,
    process_id: str,
    extra_allow: Collection[str] = (),
    extra_prefix_allow: Collection[str] = (),
    overrides: Mapping[str, str] | None = None,
    strip: Collection[str] = (),
    secrets: Collection[str] = (),
) -> dict[str, str]:
    """The whole environment for an agent, from the bridge's `environ`.

    What is common, the engine's, and what the settings add passes, less `strip`; `overrides` come on top and `strip`
    does not touch them. A variable that holds one of `secrets` never passes, under whatever name.
    """
    extra = Names(frozenset(extra_allow), tuple(prefix for prefix in extra_prefix_allow if prefix))
    passed = {
        name: value
        for name, value in environ.items()
        if name not in strip and (name in COMMON_NAMES or name in engine_names or name in extra)
    }
    passed |= overrides or {}
    telling = [secret for secret in secrets if len(secret) >= _SHORTEST_SECRET]
    kept = {}
    for name, value in passed.items():
        if name.startswith(_OURS) or is_managers(name) or any(secret in value for secret in telling):
            log.warning("environment.dropped", name=name)
        else:
            kept[name] = value
    kept[SESSION_VARIABLE] = "1"
    kept[PROCESS_VARIABLE] = process_id
    return kept
