import { hexOf } from "../bytes.js";
import { nostr_binary } from "./nostr_binary.pb.js";
import { protobufJs } from "./protobufjs.js";

export const protobufJsBinary = () => protobufJs(hexOf, nostr_binary);
