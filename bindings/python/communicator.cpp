// How communicators are made, left and grouped; their collectives are in collectives.cpp.
#include "bindings/python/communicator.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/errors.h"
#include "bindings/python/operation.h"
#include "bindings/python/window.h"
#include "core/error.h"

namespace tutti::python {
namespace {

using namespace nb::literals;

/// Exceptions by which programs and generators end.
bool ends_well(nb::handle exception) {
  return PyErr_GivenExceptionMatches(exception.ptr(), PyExc_SystemExit) != 0 ||
         PyErr_GivenExceptionMatches(exception.ptr(), PyExc_GeneratorExit) != 0;
}

using Self = PythonCommunicator&;

void bind_making(nb::class_<PythonCommunicator>& c) {
  c.def_static(
      "from_environment",
      [](std::optional<double> timeout, std::optional<double> rendezvous_timeout,
         std::optional<std::string> algorithm, std::optional<bool> invariant) {
        const Options options =
            options_of(Options(), timeout, rendezvous_timeout, std::move(algorithm), invariant);
        const Waiting waiting;
        return PythonCommunicator(Communicator::from_environment(options));
      },
      nb::kw_only(), "timeout"_a = nb::none(), "rendezvous_timeout"_a = nb::none(),
      "algorithm"_a = nb::none(), "invariant"_a = nb::none(),
      "The communicator of the job that a launcher started: tutti run, torchrun, mpirun or srun;\n"
      "of one rank where there is none. Blocks until all ranks are there.\n\n"
      "timeout: seconds that an operation may take (0: any time); rendezvous_timeout: seconds for\n"
      "all ranks to appear; algorithm: the one to be used where it exists; invariant: whether the\n"
      "bits of sums depend on the inputs and the order of the ranks alone. All ranks ask for "
      "that,\n"
      "or Mismatch names two that differ. Communicators made of this one have it, too. None: as "
      "the\n"
      "environment says (TUTTI_TIMEOUT, ...).");
  c.def_static(
      "create",
      [](const std::string& id, int rank, int size, std::optional<double> timeout,
         std::optional<double> rendezvous_timeout, std::optional<std::string> algorithm,
         std::optional<bool> invariant) {
        const Options options =
            options_of(Options(), timeout, rendezvous_timeout, std::move(algorithm), invariant);
        const UniqueId unique = unique_id_from_string(id);
        const Waiting waiting;
        return PythonCommunicator(Communicator::create(unique, rank, size, options));
      },
      "id"_a, "rank"_a, "size"_a, nb::kw_only(), "timeout"_a = nb::none(),
      "rendezvous_timeout"_a = nb::none(), "algorithm"_a = nb::none(), "invariant"_a = nb::none(),
      "All `size` ranks call this with the same id, which one of them has from make_unique_id()\n"
      "and has brought to the others.");
  c.def_static(
      "create_local",
      [](int size, std::optional<double> timeout, std::optional<std::string> algorithm,
         std::optional<bool> invariant) {
        std::vector<Communicator> made;
        {
          const Options options =
              options_of(Options(), timeout, std::nullopt, std::move(algorithm), invariant);
          const Waiting waiting;
          made = Communicator::create_local(size, options);
        }
        nb::typed<nb::list, PythonCommunicator> all;
        for (Communicator& comm : made) all.append(PythonCommunicator(std::move(comm)));
        return all;
      },
      "size"_a, nb::kw_only(), "timeout"_a = nb::none(), "algorithm"_a = nb::none(),
      "invariant"_a = nb::none(),
      "A list of `size` communicators, one for each of that many threads of this process.");
  c.def_static(
      "alone",
      [](std::optional<double> timeout, std::optional<std::string> algorithm,
         std::optional<bool> invariant) {
        const Options options =
            options_of(Options(), timeout, std::nullopt, std::move(algorithm), invariant);
        const Waiting waiting;
        return PythonCommunicator(Communicator::alone(options));
      },
      nb::kw_only(), "timeout"_a = nb::none(), "algorithm"_a = nb::none(),
      "invariant"_a = nb::none(),
      "One rank, which others may meet later: see handle and reconfigure().");
}

void bind_life(nb::class_<PythonCommunicator>& c) {
  c.def_prop_ro("rank", [](Self self) { return self.get().rank(); });
  c.def_prop_ro("size", [](Self self) { return self.get().size(); });
  c.def_prop_ro(
      "transports", [](Self self) { return self.get().transports(); },
      "What carries the bytes, for people.");
  c.def(
      "split",
      [](Self self, int color, int key, std::optional<double> timeout,
         std::optional<std::string> algorithm) -> std::optional<PythonCommunicator> {
        const Options options =
            options_of(self.get().options(), timeout, std::nullopt, std::move(algorithm));
        Communicator made;
        {
          const Callers::Call in_call(self.callers());
          const Waiting waiting;
          made = self.get().split(color, key, options);
        }
        if (!made) return std::nullopt;
        return PythonCommunicator(std::move(made));
      },
      "color"_a, "key"_a = 0, nb::kw_only(), "timeout"_a = nb::none(), "algorithm"_a = nb::none(),
      "A communicator of the ranks with the same color, ordered by key, then by rank; None for a\n"
      "negative color. All ranks call it.");
  c.def(
      "shrink",
      [](Self self, const std::vector<int>& excluded, std::optional<double> timeout,
         std::optional<double> rendezvous_timeout) {
        const Options options =
            options_of(self.get().options(), timeout, rendezvous_timeout, std::nullopt);
        const Callers::Call in_call(self.callers());
        const Waiting waiting;
        return PythonCommunicator(self.get().shrink(excluded, options));
      },
      "excluded"_a, nb::kw_only(), "timeout"_a = nb::none(), "rendezvous_timeout"_a = nb::none(),
      "A communicator of the ranks that are not in `excluded`, which call this with the same "
      "list;\n"
      "the excluded may be dead, and this communicator have failed.");
  c.def_prop_ro(
      "handle", [](Self self) { return self.get().handle(); },
      "What others need to meet this rank in reconfigure(): a line of text, with a secret. It is\n"
      "good until the rank's next reconfigure() that succeeds.");
  c.def(
      "reconfigure",
      [](Self self, const std::vector<std::string>& handles, std::uint64_t number,
         std::optional<double> timeout, std::optional<double> rendezvous_timeout,
         std::optional<std::string> algorithm) {
        const Options options =
            options_of(self.get().options(), timeout, rendezvous_timeout, std::move(algorithm));
        const Callers::Call in_call(self.callers());
        const Waiting waiting;
        return PythonCommunicator(self.get().reconfigure(handles, number, options));
      },
      "handles"_a, "number"_a, nb::kw_only(), "timeout"_a = nb::none(),
      "rendezvous_timeout"_a = nb::none(), "algorithm"_a = nb::none(),
      "The next communicator: the ranks that `handles` name, in this order, which all call this\n"
      "with the same list and a fresh positive number. This communicator may have failed; it ends\n"
      "when that succeeds, and stays as it was when it does not.\n\n"
      "rendezvous_timeout: seconds for the whole call.");
  c.def(
      "grow",
      [](Self self, const std::string& id, int size, std::optional<double> timeout,
         std::optional<double> rendezvous_timeout) {
        const Options options =
            options_of(self.get().options(), timeout, rendezvous_timeout, std::nullopt);
        const UniqueId unique = unique_id_from_string(id);
        const Callers::Call in_call(self.callers());
        const Waiting waiting;
        return PythonCommunicator(self.get().grow(unique, size, options));
      },
      "id"_a, "size"_a, nb::kw_only(), "timeout"_a = nb::none(),
      "rendezvous_timeout"_a = nb::none(),
      "A communicator of `size` ranks: the members of this one, which call this and keep their\n"
      "ranks, and newcomers, which call create() with the same id.");
  c.def(
      "use_plan",
      [](Self self, const std::string& text) {
        const Callers::Call in_call(self.callers());
        const Waiting waiting;
        self.get().use_plan(text);
      },
      "text"_a,
      "Runs the plan `text` for its collective from now on, once it is proved. All ranks call it.");
  c.def(
      "window",
      [](nb::object self, nb::object x) { return open_window(std::move(self), std::move(x)); },
      "x"_a,
      "A Window: the array x of this rank, to which the other ranks put. All ranks call it, with\n"
      "arrays of any size and type. tutti.empty() makes arrays that every system lets others "
      "write\n"
      "to.",
      nb::sig("def window(self, x: object) -> Window"));
  c.def(
      "abort", [](Self self, const std::string& reason) { self.get().abort(reason); },
      "reason"_a = "", "Makes every rank's operations fail, now and later. From any thread.");
  c.def(
      "check",
      [](Self self) {
        if (const std::optional<Error> error = self.get().error()) throw Error(*error);
      },
      "Raises the error that the next call would raise. Does not wait.");
  c.def(
      "destroy", [](Self self) { self.destroy(); },
      "Leaves, once this rank's operations are over. Does not wait for other ranks.");
  c.def(
      "__enter__", [](nb::object self) { return self; },
      nb::sig("def __enter__(self) -> Communicator"));
  c.def(
      "__exit__",
      [](Self self, nb::handle type, nb::handle value, nb::handle) {
        // The others would wait for what this rank was about to do.
        if (self.get() && !type.is_none() && !ends_well(type)) {
          self.get().abort(nb::repr(value).c_str());
        }
        self.destroy();
      },
      "type"_a.none(), "value"_a.none(), "traceback"_a.none());
  c.def("__bool__", [](Self self) { return static_cast<bool>(self.get()); });
  c.def("__repr__", [](Self self) -> std::string {
    if (!self.get()) return "<tutti.Communicator, destroyed>";
    return fmt::format("<tutti.Communicator, rank {} of {}, {}>", self.get().rank(),
                       self.get().size(), self.get().transports());
  });
}

void bind_groups(nb::module_& module) {
  module.def("_group_start", [] {
    group_start();
    ++open_groups().depth;
  });
  module.def("_group_end", [] {
    OpenGroups& groups = open_groups();
    --groups.depth;
    const auto operations =
        groups.depth == 0 ? std::exchange(groups.operations, {}) : decltype(groups.operations){};
    const Waiting waiting;
    group_end();
  });
  module.def("_group_drop", [] {
    OpenGroups& groups = open_groups();
    group_drop();
    if (--groups.depth == 0) groups.operations.clear();
  });
}

}  // namespace

Options options_of(Options options, std::optional<double> timeout,
                   std::optional<double> rendezvous_timeout, std::optional<std::string> algorithm,
                   std::optional<bool> invariant) {
  if (timeout) options.timeout = to_nanoseconds(*timeout);
  if (rendezvous_timeout) options.rendezvous_timeout = to_nanoseconds(*rendezvous_timeout);
  if (algorithm) options.algorithm = *algorithm;
  if (invariant) options.invariant = *invariant;
  return options;
}

void bind_communicator(nb::module_& module) {
  nb::class_<PythonCommunicator> c(
      module, "Communicator",
      "Ranks (processes or threads) that communicate, one of which this is.\n\n"
      "Calls take arrays: anything with the buffer protocol, DLPack, __array_interface__ or\n"
      "__cuda_array_interface__. Nothing is copied, so arrays have to be contiguous. Other\n"
      "threads run meanwhile, and Ctrl-C ends a call (on all ranks: it cannot be completed).\n"
      "With async_op=True a call returns a Future; its arrays belong to it until it is over.\n"
      "Errors are of tutti.Error.");
  bind_making(c);
  bind_collectives(c);
  bind_life(c);
  bind_groups(module);
  module.def(
      "make_unique_id",
      [] {
        const UniqueId id = make_unique_id(MeetingPlace::among_hosts());
        return to_string(id);
      },
      "A fresh id for Communicator.create(), as text. The ranks, which may be on several hosts, "
      "meet\n"
      "in this process, so it has to live until they have. Whoever knows the id may join.");
}

}  // namespace tutti::python
