import { nostr } from "./nostr.pb.js";
import { protobufJs } from "./protobufjs.js";

export const protobufJsString = () => protobufJs((text) => text, nostr);
