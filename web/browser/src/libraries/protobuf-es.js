import { fromBinary } from "@bufbuild/protobuf";
import { fileDesc, messageDesc } from "@bufbuild/protobuf/codegenv2";
import SCHEMAS from "../schemas.json" with { type: "json" };
import { protoItem, protoMessage } from "./common.js";

export function protobufEs(schema) {
  const file = fileDesc(SCHEMAS[schema]);
  const message = (name) => messageDesc(file, file.messages.findIndex((found) => found.name === name));
  const [Event, RelayMsg] = [message("Event"), message("RelayMsg")];
  const item = protoItem(schema, ({ createdAt }) => Number(createdAt));
  return {
    event: (bytes) => item(fromBinary(Event, bytes)),
    message(bytes) {
      const { message } = fromBinary(RelayMsg, bytes);
      return protoMessage(message.case, message.value, item);
    },
  };
}
