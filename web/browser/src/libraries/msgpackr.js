import { Unpackr } from "msgpackr/unpack";
import { enveloped } from "../readers.js";
import { fromList } from "./common.js";

export function msgpackR() {
  const unpackr = new Unpackr({ useRecords: false, int64AsType: "number" });
  const event = (bytes) => fromList(unpackr.unpack(bytes));
  return { event, message: enveloped(event) };
}
