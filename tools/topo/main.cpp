// `tutti topo`: the machine, or one that a file describes, as a tree, a matrix, a picture, JSON, or
// XML for NCCL; and why a GPU uses which port.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "collectives/draw/topology.h"
#include "tools/command_line/command.h"
#include "tools/text_file.h"
#include "tools/topology_source.h"
#include "topology/show/inventory.h"
#include "topology/show/json.h"
#include "topology/show/text.h"
#include "topology/write_nccl.h"

namespace tutti {
namespace {

struct Arguments {
  std::string file, machine, output, explain;
  bool matrix = false, svg = false, json = false, xml = false, tree = false;
};

void show(const Arguments& a) {
  std::string filled;
  topology::Records records = a.file.empty() && !a.machine.empty()
                                  ? described_records(a.machine)
                                  : filled_records(a.file, a.machine, filled);
  const topology::Inventory inventory = topology::inventory_of(records);
  const topology::Graph graph = topology_graph(records);
  warn_of_unlinked(graph, "--machine 8xH100 beside --file fills in what is missing");
  const std::string text = !a.explain.empty() ? explain_text(graph, a.explain)
                           : a.matrix         ? matrix_text(graph)
                           : a.svg            ? draw_topology(graph)
                           : a.json           ? to_json(graph, inventory)
                           : a.xml            ? to_nccl_xml(records)
                                              : tree_text(graph);
  write_text_file(a.output, text);
}

/// The options, and the work.
void define(CLI::App& command) {
  const auto a = std::make_shared<Arguments>();
  auto* source = command.add_option_group("Source");
  source
      ->add_option(
          "-m,--machine", a->machine,
          "A machine by its GPUs: 8xH100, 2xRTX4090; with --file, for the models and links "
          "that the file does not name")
      ->type_name("TEXT");
  source
      ->add_option("-f,--file", a->file,
                   "Instead of this machine: XML of NCCL, RCCL or hwloc, the matrix of `nvidia-smi "
                   "topo -m`, a folder that is a copy of / with sys/ in it, or one of KFD with "
                   "nodes/; - is stdin")
      ->type_name("FILE");
  command.add_option("-o,--output", a->output, "Where to write to [stdout]")->type_name("FILE");
  auto* form = command.add_option_group("Form");
  form->add_flag("--tree", a->tree, "A tree of all nodes (the default)");
  form->add_flag("--matrix", a->matrix, "How near GPUs and ports are, in the words of nvidia-smi");
  form->add_flag("--svg", a->svg, "A picture");
  form->add_flag("--json", a->json, "All nodes and links, for programs");
  form->add_flag("--xml", a->xml, "For NCCL and RCCL (NCCL_TOPO_FILE), with the repairs");
  form->add_option("--explain", a->explain,
                   "The place of a node, its links, and the port that it uses")
      ->type_name("gpu3");
  form->require_option(0, 1);
  command.footer(
      "Names records that cannot be true on standard error, and repairs them; TUTTI_TOPO_TRUST=1\n"
      "turns that off. docs/topology.md lists the repairs.");
  command.callback([a] { show(*a); });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("topo", tutti::define, argc, argv); }
