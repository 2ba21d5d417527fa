// The rows of the readers by hand.

import { capnp, capnpMessage } from "./capnp.js";
import * as read from "./readers.js";

export const tunedCborPacked = () => ({ event: read.cborPacked });
export const tunedCapnp = () => ({ event: capnp, message: capnpMessage });
export const tunedDannypack = () => ({ event: read.dannypack, message: read.enveloped(read.dannypack) });
export const tunedNotepack = () => ({ event: read.notepack, message: read.enveloped(read.notepack) });
export const tunedLeaner = () => ({ event: read.leaner, message: read.enveloped(read.leaner) });
export const headOfDannypack = () => ({ event: read.dannypackId });
export const headOfNotepack = () => ({ event: read.notepackId });
