// The program of the worker that makes large trees.

import {serve} from './workshop';

serve(self as unknown as Parameters<typeof serve>[0]);
