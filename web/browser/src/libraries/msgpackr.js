import { Unpackr } from "msgpackr/unpack";
import { fromList } from "./common.js";

export function msgpackR() {
  const unpackr = new Unpackr({ useRecords: false, int64AsType: "number" });
  return { event: (bytes) => fromList(unpackr.unpack(bytes)) };
}
