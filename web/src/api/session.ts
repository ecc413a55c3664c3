// The files that the server was started with.

/** A process of a recording. */
export interface SessionProcess {
  process: number;
  name: string;
  pid: number | null;
}

export interface SessionFile {
  id: number;
  name: string;
  path: string;
  kind: string;
  bytes: number;
  /** The verbs that can be asked about it. */
  verbs: string[];
  processes: SessionProcess[];
}

export interface Memory {
  bytes: number;
  bound: number;
  resident?: number | null;
}

export interface Session {
  version: number;
  heapledger: string;
  files: SessionFile[];
  memory: Memory;
}
