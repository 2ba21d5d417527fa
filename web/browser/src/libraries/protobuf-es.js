import { fromBinary } from "@bufbuild/protobuf";
import { fileDesc, messageDesc } from "@bufbuild/protobuf/codegenv2";
import SCHEMAS from "../schemas.json" with { type: "json" };
import { protoItem } from "./common.js";

export function protobufEs(schema) {
  const file = fileDesc(SCHEMAS[schema]);
  const Event = messageDesc(file, file.messages.findIndex((found) => found.name === "Event"));
  const item = protoItem(schema, ({ createdAt }) => Number(createdAt));
  return { event: (bytes) => item(fromBinary(Event, bytes)) };
}
