// What a dashboard may contain, by Grafana's own types. A dashboard is JSON, so an enum of strings is one of its strings there.
import type { Dashboard, DataQuery, FieldConfigSource, GraphFieldConfig, Panel, RowPanel, VariableModel } from "@grafana/schema";
import type { Options as Stat } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type { Options as TimeSeries } from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

type Json<T> = T extends string ? `${T}`
  : T extends number | boolean | null | undefined ? T
  : T extends Array<infer One> ? Array<Json<One>>
  : { [Key in keyof T]: Json<T[Key]> };

// Grafana's type leaves these open: they belong to the kind of the panel and to the data source.
interface Typed<Kind extends string, Options, Field> extends Omit<Panel, "type" | "options" | "fieldConfig" | "targets"> {
  type: Kind;
  title: string;
  description: string;
  options: Options;
  fieldConfig: Omit<FieldConfigSource, "defaults"> & { defaults: Omit<FieldConfigSource["defaults"], "custom"> & { custom?: Field } };
  targets: Array<DataQuery & { expr: string; legendFormat: string }>;
}

type Content = Omit<Dashboard, "panels" | "templating"> & {
  uid: string;
  title: string;
  templating: { list: VariableModel[] };
  panels: Array<Typed<"timeseries", TimeSeries, GraphFieldConfig> | Typed<"stat", Stat, never> | RowPanel>;
};

export type Checked = Json<Content>;
