// Only the last of several requests for the same place on the page counts: earlier ones are aborted.

export class Latest {
  async run(work) {
    // undefined if another request has followed
    this.stop();
    const mine = (this.aborter = new AbortController());
    try {
      const found = await work(mine.signal);
      return mine.signal.aborted ? undefined : found;
    } catch (error) {
      if (mine.signal.aborted) return undefined;
      throw error;
    }
  }

  stop() {
    this.aborter?.abort();
  }
}

export class Pause {
  // waits until nothing has changed for a while
  constructor(ms) {
    this.ms = ms;
  }

  then(act) {
    clearTimeout(this.timer);
    this.timer = setTimeout(act, this.ms);
  }

  stop() {
    clearTimeout(this.timer);
  }
}
