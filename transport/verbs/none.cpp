// Where Tutti was built without RDMA verbs.
#include "core/error.h"
#include "transport/network/wire_choice.h"

namespace tutti {
namespace {

constexpr const char* kWhy = "Tutti was built without RDMA verbs (TUTTI_VERBS)";

}  // namespace

VerbsState verbs_state() { return {{}, kWhy, ""}; }

std::shared_ptr<EndpointMaker> make_verbs_endpoints(WireOffer&, const NearestPorts&) {
  throw Error(ErrorCode::system, kWhy);
}

}  // namespace tutti
