// Asks a person before Pi runs a tool. Untether loads it with `pi --extension`; nothing of Pi's own configuration changes.
//
// Pi has no approvals of its own: without an extension every tool call runs at once. This one asks for each call through
// Pi's UI requests and does what the answer says. Which calls a person really sees is decided by Untether, which also
// answers what was approved for the session. Whatever is not an approval is a refusal.
//
// Where there is no UI (JSON print mode), nobody can be asked: only the tools of UNTETHER_PI_TOOLS run.

const ALLOW = "Allow";
const SESSION = "Allow for this session";
const DENY = "Deny";
const REFUSED = "The person did not allow this. Go on without it, or ask what to do instead.";
const NOBODY = "Nobody can be asked in this mode, so this is refused. Go on without it, and say what you could not do.";

export default function gate(pi: any) {
  const unasked = new Set((process.env.UNTETHER_PI_TOOLS ?? "read,grep,find,ls").split(","));

  // Proof for Untether that the gate is in place: it begins no turn before it has seen this command.
  pi.registerCommand("untether-gate", { description: "Untether asks before tools run", handler: async () => {} });

  pi.on("tool_call", async (event: any, ctx: any) => {
    if (!ctx.hasUI) return unasked.has(event.toolName) ? undefined : { block: true, reason: NOBODY };
    const detail = JSON.stringify({ tool: event.toolName, id: event.toolCallId, input: event.input });
    // Without the signal, an abort would wait until the dialog is answered.
    const answer = await ctx.ui.select(`gate:${detail}`, [ALLOW, SESSION, DENY], { signal: ctx.signal });
    if (answer === ALLOW || answer === SESSION) return undefined;
    const reason = typeof answer === "string" ? answer.replace(/^Deny:?\s*/, "") : "";
    return { block: true, reason: reason || REFUSED };
  });
}
