// Plans as users may write them, with as many lanes and links as the text form has room for, run
// beside everything else that a communicator does. The same body for thread ranks and for process
// ranks.
#pragma once

#include <string>

#include "comm/communicator.h"

namespace tutti::test {

/// all_reduce by rings, `lanes` of them at once, each with a link of its own to the next rank.
std::string many_rings(int ranks, std::uint32_t lanes);
/// broadcast of 255 pieces, each by a channel of its own (the last piece by channel 0), in one
/// lane.
std::string many_channels(int ranks, int root);

/// Runs them beside sends and receives and ordinary collectives. Collective. Throws
/// std::runtime_error for a wrong result.
void exercise_many_links(Communicator& comm);

}  // namespace tutti::test
