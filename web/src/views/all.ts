// All views, in the order in which they are listed.

import {AdviceView, GrowthView} from './advice';
import {AnswersView} from './answers';
import {BlocksView, ReallocationsView} from './blocks';
import {DiffView} from './diff';
import {FlamePlace} from './flame';
import {LeaksView, TableView, TemporaryView} from './ranked';
import {SizesView} from './sizes';
import {SummaryView} from './summary';
import {TimelineView} from './timeline';
import {TreeView} from './tree';
import {TreemapView} from './treemap';
import {addView} from './views';

addView({id: 'summary', label: 'Summary', verb: 'summary', component: SummaryView});
addView({id: 'timeline', label: 'Timeline', verb: 'timeline', component: TimelineView});
addView({id: 'flame', label: 'Flame graph', verb: 'tree', component: FlamePlace});
addView({id: 'tree', label: 'Tree', verb: 'tree', component: TreeView});
addView({id: 'table', label: 'Table', verb: 'top', component: TableView});
addView({id: 'treemap', label: 'Treemap', verb: 'top', component: TreemapView});
addView({id: 'leaks', label: 'Leaks', verb: 'leaks', component: LeaksView});
addView({id: 'temporary', label: 'Temporary', verb: 'temporary', component: TemporaryView});
addView({id: 'reallocations', label: 'Reallocations', verb: 'reallocations', component: ReallocationsView});
addView({id: 'sizes', label: 'Sizes', verb: 'sizes', component: SizesView});
addView({id: 'blocks', label: 'Blocks', verb: 'blocks', component: BlocksView});
addView({id: 'growth', label: 'Growth', verb: 'growth', component: GrowthView});
addView({id: 'advice', label: 'Advice', verb: 'advise', component: AdviceView});
addView({id: 'diff', label: 'Diff', verb: 'diff', component: DiffView});
addView({id: 'answers', label: 'All answers', verb: '', component: AnswersView});
