// Loads a trace into Chrome's viewer, and returns what the viewer read from its memory dumps. Runs
// in Node: see trace-viewer. In a page of the viewer, it is a function.
'use strict';

function viewed(tr, text) {
  const model = new tr.Model();
  new tr.importer.Import(model, new tr.importer.ImportOptions()).importTraces([text]);

  const numerics = (dump) => {
    const values = {weak: dump.weak};
    for (const name in dump.numerics) values[name] = dump.numerics[name].value;
    if (dump.owns) values.owns = {target: dump.owns.target.fullName, importance: dump.owns.importance};
    return values;
  };

  const allocators = (container) => {
    const found = {};
    const visit = (dump) => {
      found[dump.fullName] = numerics(dump);
      dump.children.forEach(visit);
    };
    (container.memoryAllocatorDumps || []).forEach(visit);
    return found;
  };

  const stack = (frame) => {
    const names = [];
    for (; frame; frame = frame.parentFrame) names.unshift(frame.title);
    return names;
  };

  const heaps = (dumps) => {
    const found = {};
    for (const name in dumps || {}) {
      found[name] = dumps[name].entries.map((entry) => ({
        stack: stack(entry.leafStackFrame),
        type: entry.objectTypeName,
        size: entry.size,
        count: entry.count,
        // Viewers of 2016 know only totals.
        isTotal: entry.valuesAreTotals !== false,
      }));
    }
    return found;
  };

  const regions = (node) => node && {sizeInBytes: node.sizeInBytes, byteStats: node.byteStats};

  const counters = (process) => {
    const found = {};
    for (const counter of Object.values(process.counters)) {
      found[counter.name] = counter.series[0].samples.map((sample) => ({time: sample.timestamp, value: sample.value}));
    }
    return found;
  };

  // Returns the name of a level of detail, whose numbers changed over the years.
  const level = (number) => {
    const levels = tr.model.ContainerMemoryDump.LevelOfDetail;
    return Object.keys(levels).find((name) => levels[name] === number).toLowerCase();
  };

  const dumps = model.globalMemoryDumps.map((global) => {
    const processes = {};
    for (const pid in global.processMemoryDumps) {
      const dump = global.processMemoryDumps[pid];
      processes[pid] = {
        level: level(dump.levelOfDetail),
        totals: dump.totals,
        regions: regions(dump.vmRegions),
        allocators: allocators(dump),
        heaps: heaps(dump.heapDumps),
      };
    }
    return {time: global.start, level: level(global.levelOfDetail), allocators: allocators(global), processes};
  });
  const processes = {};
  for (const pid in model.processes) {
    processes[pid] = {name: model.processes[pid].name, counters: counters(model.processes[pid])};
  }
  const warnings = model.importWarnings.map((warning) => `${warning.type}: ${warning.message}`);
  return {dumps, processes, warnings};
}

if (typeof require === 'function') {
  const fs = require('fs');
  console.log(JSON.stringify(viewed(require(process.env.TRACE_VIEWER), fs.readFileSync(process.argv[2], 'utf8'))));
}
