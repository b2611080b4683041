// Attention: every layer and head of a run while it reads a text and writes its output, or one that is given.

import { LookView } from "./look_view.js";
import { can } from "./runs.js";

export class AttentionView extends LookView {
  constructor(panel) {
    super(panel, { kind: "attention", name: "Attention map" });
  }

  refusal(run) {
    if (!can(run, "look"))
      return [`${run.name} has no attention to show`, "Choose another run; a recurrent one can be seen under Inside."];
  }
}
