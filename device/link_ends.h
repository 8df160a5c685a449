// The ends of the links that carry kernels' messages (proxy.h) between a rank of this process and
// one of another, in both directions, by channel. They lie in the host's shared memory (inbox.h),
// or lead to another host (network_links.h).
#pragma once

#include <memory>
#include <vector>

#include "transport/links.h"

namespace tutti {

struct LinkEnds {
  std::vector<SendEnd> outgoing;
  std::vector<ReceiveEnd> incoming;
  std::shared_ptr<void> held;  // what they lie in, where nobody else keeps it
};

}  // namespace tutti
