// The rows of the readers by hand.

import * as read from "./readers.js";

export const tunedDannypack = () => ({ event: read.dannypack, message: read.enveloped(read.dannypack) });
export const tunedNotepack = () => ({ event: read.notepack, message: read.enveloped(read.notepack) });
export const tunedLeaner = () => ({ event: read.leaner, message: read.enveloped(read.leaner) });
