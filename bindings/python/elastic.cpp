// tutti.ElasticJob: a job with ranks that come and go (comm/elastic.h).
#include "comm/elastic.h"

#include <nanobind/stl/optional.h>

#include <optional>
#include <utility>

#include "bindings/python/communicator.h"

namespace tutti::python {

using namespace nb::literals;

void bind_elastic(nb::module_& module) {
  nb::class_<ElasticJob> c(
      module, "ElasticJob",
      "A job whose ranks come and go while it runs, under `tutti run --elastic MIN:MAX`: a rank\n"
      "that fails is replaced by a new process, and the others go on. A process has one.\n\n"
      "    job = tutti.ElasticJob()\n"
      "    comm = job.join()                        # meets the others\n"
      "    while ...:\n"
      "        if job.should_join(comm):            # the same answer on all ranks\n"
      "            comm = job.join(comm)\n\n"
      "When a call raises PeerLost or Aborted, all ranks call join(comm) as well.");
  c.def(nb::init<>());
  c.def_prop_ro(
      "number", [](ElasticJob& self) { return self.number(); },
      "The newest round that the job wants; different ranks hear of it at different times.");
  c.def_prop_ro(
      "joined", [](ElasticJob& self) { return self.joined(); }, "The round of the newest join().");
  c.def(
      "should_join",
      [](ElasticJob& self, PythonCommunicator& comm) {
        const Callers::Call in_call(comm.callers());
        const Waiting waiting;
        return self.should_join(comm.get());
      },
      "comm"_a,
      "Whether any rank of `comm` knows of a newer round; an all_reduce, so that all ranks get "
      "the\n"
      "same answer.");
  c.def(
      "join",
      [](ElasticJob& self, PythonCommunicator* comm, std::optional<double> timeout,
         std::optional<double> rendezvous_timeout, std::optional<bool> invariant) {
        const Options options =
            options_of(Options(), timeout, rendezvous_timeout, std::nullopt, invariant);
        if (comm == nullptr) {
          Communicator first;
          const Waiting waiting;
          self.join(first, options);
          return PythonCommunicator(std::move(first));
        }
        comm->callers().refuse_in_call();
        if (comm->callers().has_others()) {
          throw Error(ErrorCode::invalid_usage,
                      "join(): another thread is in a call of the communicator, which ends");
        }
        const Callers::Call in_call(comm->callers());
        const Waiting waiting;
        self.join(comm->get(), options);
        return PythonCommunicator(std::exchange(comm->get(), {}));
      },
      "comm"_a.none() = nb::none(), nb::kw_only(), "timeout"_a = nb::none(),
      "rendezvous_timeout"_a = nb::none(), "invariant"_a = nb::none(),
      "The next communicator, of the ranks that are there: those of before in their order, then "
      "the\n"
      "new ones. All ranks call this. `comm`, the one before, may have failed; it ends.\n\n"
      "rendezvous_timeout: seconds for the whole call; invariant: as from_environment() has it, "
      "the\n"
      "same on all ranks.");
}

}  // namespace tutti::python
