// Where Tutti was built without UCX.
#include "core/error.h"
#include "transport/network/wire_choice.h"

namespace tutti {

std::string why_no_ucx() { return "Tutti was built without UCX (TUTTI_UCX)"; }

UcxState ucx_state() { return {"", why_no_ucx()}; }

std::shared_ptr<EndpointMaker> make_ucx_endpoints() {
  throw Error(ErrorCode::system, why_no_ucx());
}

}  // namespace tutti
