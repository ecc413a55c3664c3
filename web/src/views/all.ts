// All views, in the order in which they are listed.

import {LeaksView, TableView, TemporaryView} from './ranked';
import {SummaryView} from './summary';
import {addView} from './views';

addView({id: 'summary', label: 'Summary', verb: '', component: SummaryView});
addView({id: 'table', label: 'Table', verb: 'top', component: TableView});
addView({id: 'leaks', label: 'Leaks', verb: 'leaks', component: LeaksView});
addView({id: 'temporary', label: 'Temporary', verb: 'temporary', component: TemporaryView});
