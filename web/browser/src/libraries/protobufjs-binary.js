import { nostr_binary } from "./nostr_binary.pb.js";
import { protobufJs } from "./protobufjs.js";

export const protobufJsBinary = () => protobufJs("nostr_binary", nostr_binary);
