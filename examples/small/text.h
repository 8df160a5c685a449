// 3. Plans as text: a table that can be printed can be read, compared and written by hand.
//
//     tutti plan 1
//     all_reduce ring  ranks 2  pieces 2  slots 2  lanes 1
//     rank 0
//       lane 0
//         to(1) <- in[1]
//         out[0], to(1) <= from(1) + in[0]
//         out[1] <- from(1)
//     rank 1
//       ...
//
// The form is the library's (docs/plans.md), so `tutti plan verify --file` and `tutti plan draw
// --file` take what `small show` prints. A lane is a list of steps; here each rank has one, number
// 0.
//
// In the library: collectives/text/. It adds the rest of the language, and comments.
#pragma once

#include <string>

#include "plan.h"

namespace small {

std::string name(Collective collective);
/// "out[0], to(1) <= from(1) + in[0]".
std::string to_text(const Step& step);
std::string to_text(const Plan& plan);

/// The inverse of to_text(plan). Throws std::invalid_argument, which names the line and what stands
/// there. Whether the plan is right is another question, which verify() answers.
Plan plan_from_text(const std::string& text);

}  // namespace small
