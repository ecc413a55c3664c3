//! The levels of a tree of calls for one site: the frames of its stack, the scopes of its context,
//! and the groups that it is in.

use crate::functions::Frame;
use crate::names::Names;
use crate::profile::Site;
use crate::rank::{Key, RankBy, group};
use crate::stacks::{ContextId, NodeId, Stacks};

/// The source of some levels of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The frames of the stack.
    Stack,
    /// The scopes of the context.
    Context,
    /// The group of the stack: its owner, its heap, or the type of its blocks.
    Group(RankBy),
    /// The part of a site in a [profile by parts](crate::Profile::load_split); no level in another
    /// profile.
    Part,
}

/// The direction in which a tree of calls grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the outermost callers to the functions that allocate.
    #[default]
    TopDown,
    /// From the functions that allocate to their callers.
    BottomUp,
}

impl Names<'_, '_> {
    /// Returns a site's levels in these layers, as if all were frames: within each layer from the
    /// outermost to the innermost, or the other way round. Never empty, unless no layer is asked
    /// for.
    pub fn layers(&mut self, stacks: &Stacks, site: &Site, layers: &[Layer], direction: Direction) -> Vec<Frame> {
        let (stack, mut all) = (site.stack, Vec::new());
        for layer in layers {
            let mut frames = match layer {
                Layer::Stack => self.useful_frames(stacks, stack),
                Layer::Context => self.context_frames(stacks, stacks.context(stack)),
                Layer::Part => site.part.map(Frame::named).into_iter().collect(),
                Layer::Group(by) => vec![self.group_frame(stacks, stack, *by)],
            };
            if direction == Direction::TopDown {
                frames.reverse();
            }
            all.append(&mut frames);
        }
        all
    }

    /// Returns the group of a stack as a frame, to be shown in place of a function.
    fn group_frame(&mut self, stacks: &Stacks, stack: NodeId, by: RankBy) -> Frame {
        match group(self, stacks, (stack, None), by) {
            (Key::Line(function) | Key::File(function), _) => Frame::named(function),
            (Key::Module(module), _) => {
                let path = self.module_path(module);
                self.label(if path.is_empty() { "(unknown module)" } else { &path })
            }
            (_, frame) => frame,
        }
    }

    /// Returns the scopes of a context, from the innermost to the outermost.
    fn context_frames(&mut self, stacks: &Stacks, context: ContextId) -> Vec<Frame> {
        let mut labels: Vec<String> = stacks.scopes(context).into_iter().rev().map(|scope| self.scope(scope)).collect();
        if labels.is_empty() {
            labels.push(self.context(stacks, context));
        }
        labels.iter().map(|label| self.label(label)).collect()
    }
}
