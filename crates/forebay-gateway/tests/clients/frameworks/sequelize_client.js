// Sequelize: models, sync, transactions, its pool.

import { DataTypes, Op, Sequelize } from "sequelize";

import { CONNECTIONS } from "./lap.js";
import { judge, migrate } from "./work.js";

const { PGHOST, PGPORT, PGDATABASE, PGUSER, PGPASSWORD } = process.env;
const sequelize = new Sequelize(PGDATABASE, PGUSER, PGPASSWORD, {
  host: PGHOST,
  port: Number(PGPORT),
  dialect: "postgres",
  logging: false,
  pool: { max: CONNECTIONS },
  // The service has no such setting.
  dialectOptions: { application_name: "sequelize" },
});
const Visit = sequelize.define("visit", {
  id: { type: DataTypes.UUID, primaryKey: true, defaultValue: DataTypes.UUIDV4 },
  path: DataTypes.TEXT,
}, { tableName: "sequelize_visits", timestamps: false });
await migrate(() => Visit.sync());

const beginning = (prefix) => ({ path: { [Op.startsWith]: prefix } });
await judge("sequelize", {
  insert: async (id, path) => (await Visit.create({ id, path })).path,
  find: async (id) => (await Visit.findByPk(id))?.path ?? null,
  rename: async (id, path) => (await Visit.update({ path }, { where: { id } }))[0],
  count: (prefix) => Visit.count({ where: beginning(prefix) }),
  insertMany: (rows) => Visit.bulkCreate(rows.map(([id, path]) => ({ id, path }))),
  remove: (prefix) => Visit.destroy({ where: beginning(prefix) }),
  add: (id) => sequelize.transaction(async (transaction) => {
    const visit = await Visit.findByPk(id, { transaction });
    await visit.update({ path: String(Number(visit.path) + 1) }, { transaction });
  }),
  fail: (id, path) => sequelize.transaction(async (transaction) => {
    await Visit.create({ path }, { transaction });
    await Visit.create({ id, path }, { transaction });
  }),
  name: async () => (await sequelize.query("SHOW application_name", { plain: true })).application_name,
});
