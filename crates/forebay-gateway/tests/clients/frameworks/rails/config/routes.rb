Rails.application.routes.draw do
  get "name", to: "sites#name"
  resources :sites, only: %i[create show update destroy] do
    resources :visits, only: %i[create update]
  end
end
