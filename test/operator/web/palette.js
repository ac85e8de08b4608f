// The server makes palette.js: a stand-in for modules that import it. Import this before them.
import { register } from "node:module";

const PALETTE = "data:text/javascript,export const TARGETS = ['red', 'green'], STATES = Object.fromEntries(['IDLE', 'ACQUIRING', 'TRACKING', 'COASTING', 'LOST'].map((name) => [name, { colour: name, line: 'solid', frame: false }])), EDGE = 'black';";
const hook = `export const resolve = (name, context, next) =>
  name === "./palette.js" ? { url: ${JSON.stringify(PALETTE)}, shortCircuit: true } : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);
