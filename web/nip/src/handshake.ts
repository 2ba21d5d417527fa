/** Tokens of the WebSocket handshake. */
import type { Dictionary } from "./zstd.js";

/** NIP-01 in text messages. */
export const PLAIN = "nostr.json";
export const tokenOf = (dictionary: Dictionary) => `${PLAIN}+zstd-dict2-${dictionary.id}`;

/** What a client offers, best first. */
export const offer = (dictionaries: Dictionary[]) => [...dictionaries.map(tokenOf), PLAIN];

/** What a relay answers to the client's header: the first known token, or undefined for no header. */
export function choose(header: string | undefined, dictionaries: Dictionary[]): string | undefined {
  const known = offer(dictionaries);
  return (header ?? "")
    .split(",")
    .map((element) => element.split(/[ \t]/).filter((word) => word !== ""))
    .find((words) => words.length === 1 && known.includes(words[0]!))?.[0];
}

/** The dictionary that a token names; undefined for text. */
export const dictionaryOf = (token: string, dictionaries: Dictionary[]) =>
  dictionaries.find((dictionary) => tokenOf(dictionary) === token);
